//! The checks behind `falaj doctor`. Each gives one finding: what was looked at, how it stands,
//! and what to do about it. A check never changes anything, and one that cannot run says so.

use std::fmt::Write as _;

use serde_json::{Value, json};

mod local;
mod remote;

use crate::context::Context;
use crate::exit::Result;
use crate::output::{Output, printable};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Ok,
    Warn,
    Fail,
}

impl Status {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Finding {
    status: Status,
    /// What was looked at.
    check: String,
    /// How it stands.
    text: String,
    /// What to do about it.
    fix: Option<String>,
}

impl Finding {
    fn ok(check: impl Into<String>, text: impl Into<String>) -> Self {
        Self { status: Status::Ok, check: check.into(), text: text.into(), fix: None }
    }

    fn warn(check: impl Into<String>, text: impl Into<String>, fix: impl Into<String>) -> Self {
        let fix = Some(fix.into());
        Self { status: Status::Warn, check: check.into(), text: text.into(), fix }
    }

    fn fail(check: impl Into<String>, text: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { status: Status::Fail, ..Self::warn(check, text, fix) }
    }

    pub(crate) fn is_failure(&self) -> bool {
        self.status == Status::Fail
    }

    fn json(&self) -> Value {
        json!({
            "status": self.status.as_str(), "check": self.check, "text": self.text, "fix": self.fix,
        })
    }

    fn line(&self) -> String {
        let mut line = format!("{:<5} {:<18} {}", self.status.as_str(), self.check, self.text);
        if let Some(fix) = &self.fix {
            // Writing into a String cannot fail.
            let _ = write!(line, "\n{:24} → {fix}", "");
        }
        printable(&line, true)
    }
}

/// Runs every check that applies.
pub(crate) async fn examine(ctx: &Context, client_only: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !client_only {
        findings.extend(local::examine(ctx).await);
    }
    findings.extend(remote::examine(ctx).await);
    findings
}

pub(crate) fn print(output: Output, findings: &[Finding]) -> Result<()> {
    if output.is_json() {
        return output.json(&findings.iter().map(Finding::json).collect());
    }
    let lines: Vec<_> = findings.iter().map(Finding::line).collect();
    output.text(&lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_says_how_it_stands_and_what_to_do() {
        let finding = Finding::fail("keyring", "others can read it", "chmod 600 keyring.json");
        let expected = "fail  keyring            others can read it\n\
                        \u{20}                        → chmod 600 keyring.json";
        assert_eq!(finding.line(), expected);
        assert_eq!(finding.json()["status"], "fail");
        assert!(finding.is_failure() && !Finding::ok("clock", "right").is_failure());
    }
}
