//! Reading what an environment file says about packages.

use std::collections::BTreeMap;

/// The packages of a requirements file: each by its name in small letters, with what is said about
/// its version. A line that names none (a URL, an option) stands for itself.
pub(super) fn packages(text: &str) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for line in text.lines() {
        let line = line.split(" #").next().unwrap_or_default().trim();
        if line.is_empty() || line.starts_with('#') || line.starts_with("--hash") {
            continue;
        }
        let line = line.trim_end_matches('\\').trim_end();
        let is_word = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let end = line.find(|c: char| !is_word(c)).unwrap_or(line.len());
        let (name, version) = line.split_at(end);
        if name.is_empty() || line.contains("://") || line.starts_with('-') {
            all.insert(line.to_owned(), String::new());
        } else {
            let name = name.to_ascii_lowercase().replace(['_', '.'], "-");
            all.insert(name, version.trim().to_owned());
        }
    }
    all
}

/// The packages of a `conda.yaml` or `python_env.yaml`, read as a list of lines: `- numpy=1.2`,
/// `python: 3.11.2`. Enough to compare; nothing is resolved.
pub(super) fn listed(text: &str) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for line in text.lines() {
        let line = line.trim();
        if let Some(python) = line.strip_prefix("python:") {
            let version = python.trim().trim_matches(['"', '\'']);
            all.insert("python".to_owned(), format!("=={version}"));
        } else if let Some(item) = line.strip_prefix("- ") {
            let item = item.trim_matches(['"', '\'']);
            // `pip:` opens a list of its own, and channels and files are no packages.
            let plain = !item.is_empty() && !item.ends_with(':') && !item.starts_with('-');
            if plain && (item.contains('=') || item.contains(['<', '>'])) {
                all.extend(packages(item));
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(map: &BTreeMap<String, String>) -> Vec<(&str, &str)> {
        map.iter().map(|(name, version)| (name.as_str(), version.as_str())).collect()
    }

    #[test]
    fn requirements() {
        let text = "# made by hand\nNumPy==1.26.4\nscikit_learn >= 1.2  # why\n\
                    torch[cuda]==2.1\n-e git+https://h/x.git\nfoo @ https://h/foo.whl\n\
                    bar==1 \\\n    --hash=sha256:00\n\n";
        assert_eq!(
            pairs(&packages(text)),
            [
                ("-e git+https://h/x.git", ""),
                ("bar", "==1"),
                ("foo @ https://h/foo.whl", ""),
                ("numpy", "==1.26.4"),
                ("scikit-learn", ">= 1.2"),
                ("torch", "[cuda]==2.1"),
            ]
        );
    }

    #[test]
    fn environments() {
        let conda = "channels:\n- conda-forge\ndependencies:\n- python=3.11.2\n- pip<=23\n- pip:\n  \
                     - mlflow==3.1\nname: x\n";
        let found = listed(conda);
        assert_eq!(pairs(&found), [("mlflow", "==3.1"), ("pip", "<=23"), ("python", "=3.11.2")]);
        let venv = "python: 3.11.2\nbuild_dependencies:\n- pip==23.1\ndependencies:\n- -r requirements.txt\n";
        assert_eq!(pairs(&listed(venv)), [("pip", "==23.1"), ("python", "==3.11.2")]);
    }
}
