//! `falaj --help` as a guide: first steps, then the commands by what one wants to do.
//!
//! The list is built from the commands themselves, so that it cannot miss one (a test compares).

use std::fmt::Write as _;

use clap::CommandFactory;

use crate::cli::Cli;

/// The commands in the order a newcomer meets them.
const GROUPS: [(&str, &[&str]); 12] = [
    ("Run a server", &["init", "serve", "doctor", "config", "backup", "restore"]),
    ("Sign in", &["login", "whoami", "token"]),
    ("People and permissions", &["tenant", "project", "user", "service-account", "role", "policy"]),
    ("Experiments and runs", &["experiment", "run", "gc", "retention", "hold"]),
    ("Models", &["model", "webhook"]),
    ("Data and features", &["dataset", "apply", "feature", "training-set"]),
    ("Models that answer", &["deploy", "endpoint", "predict", "serve-edge", "engine"]),
    ("Training", &["train", "job", "queue", "pool", "cost", "budget", "simulate"]),
    ("Data, keys and where they may be", &["object", "key", "zone"]),
    ("Coming from elsewhere, and going", &["import", "sync", "export"]),
    ("What happened", &["audit", "events"]),
    ("About this command", &["completions", "version", "exit-codes", "help"]),
];

const FIRST_STEPS: &str = "\
First steps:
  falaj serve --data-dir ./data                       start a server on 127.0.0.1:7470
  falaj login --token-file ./data/admin.token         sign in as its first administrator
  falaj doctor                                        see what is configured and what is missing
  falaj tenant create acme                            make a tenant, then a project in it
  falaj project create vision --tenant acme
  echo hello | falaj object put greeting - -t acme -p vision
  falaj audit search                                  every change, and who made it

";

const LAST_WORDS: &str = "\
Every command explains itself and shows an example: falaj COMMAND --help.
Results go to stdout, everything else to stderr; --output json is for programs.
Exit codes are listed by `falaj help exit-codes`.";

/// The command tree with the guide in place of the plain list of commands.
pub(crate) fn command() -> clap::Command {
    let command = Cli::command();
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{FIRST_STEPS}{}\
         Options of every command:\n{{options}}\n\n{LAST_WORDS}",
        groups(&command)
    );
    command.help_template(template)
}

fn groups(command: &clap::Command) -> String {
    let mut text = String::new();
    for (title, names) in GROUPS {
        // Writing into a String cannot fail.
        let _ = writeln!(text, "{title}:");
        for name in names {
            let about = command
                .find_subcommand(name)
                .and_then(|command| command.get_about())
                .map_or_else(|| "Explain a command".to_owned(), ToString::to_string);
            let _ = writeln!(text, "  {name:<16} {about}");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls `check` with every leaf command and its full name.
    fn leaves(command: &clap::Command, name: &str, check: &mut impl FnMut(&str, &clap::Command)) {
        let mut inner = command.get_subcommands().filter(|c| c.get_name() != "help").peekable();
        if inner.peek().is_none() {
            check(name, command);
        }
        for sub in inner {
            leaves(sub, &format!("{name} {}", sub.get_name()), check);
        }
    }

    /// Splits a line as a shell does, as far as the examples need it: spaces and single quotes.
    fn words(line: &str) -> Vec<String> {
        let mut words = Vec::new();
        for (index, part) in line.split('\'').enumerate() {
            if index % 2 == 0 {
                words.extend(part.split_whitespace().map(str::to_owned));
            } else {
                words.push(part.to_owned());
            }
        }
        words
    }

    #[test]
    fn the_tree_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn every_command_explains_itself_and_shows_an_example() {
        let mut count = 0;
        leaves(&command(), "falaj", &mut |name, command| {
            count += 1;
            assert!(command.get_about().is_some(), "`{name}` has no description");
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(
                after.contains("Example") && after.contains(name),
                "`{name}` shows no example of itself"
            );
            for argument in command.get_arguments() {
                let known = argument.get_help().is_some() || argument.get_long_help().is_some();
                assert!(known, "`{name}`: {} has no help", argument.get_id());
            }
        });
        assert!(count > 40, "only {count} commands were found");
    }

    #[test]
    fn the_examples_are_accepted_by_the_parser() {
        leaves(&command(), "falaj", &mut |name, leaf| {
            let after = leaf.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in after.lines().map(str::trim).filter(|line| line.starts_with("falaj ")) {
                let words = words(line.split([';', '|', '<', '>', '#']).next().unwrap_or_default());
                let result = command().try_get_matches_from(words);
                assert!(result.is_ok(), "`{name}`: example `{line}`: {}", result.unwrap_err());
            }
        });
    }

    #[test]
    fn the_guide_names_every_command_once() {
        let command = command();
        let mut grouped: Vec<_> = GROUPS.iter().flat_map(|(_, names)| names.iter()).collect();
        grouped.sort();
        let mut known: Vec<_> = command.get_subcommands().map(clap::Command::get_name).collect();
        known.push("help");
        known.sort_unstable();
        known.dedup();
        assert_eq!(grouped, known.iter().collect::<Vec<_>>());
    }

    #[test]
    fn the_guide_reads_well() {
        let text = command().render_help().to_string();
        for part in ["First steps:", "Run a server:", "What happened:", "exit-codes", "--output"] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        assert!(text.lines().all(|line| line.len() <= 110), "a line is too long:\n{text}");
    }
}
