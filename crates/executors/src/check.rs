//! What no executor can start, found before anything is written.

use crate::Launch;

/// The most ranks of one attempt.
pub const MOST_RANKS: usize = 1024;
/// The most bytes of one word of the command, or of one variable: the kernel's own limit
/// less what executors write before it.
const LONGEST_WORD: usize = 128 * 1024 - 64;

/// The first thing that makes a launch impossible for an executor that starts programs.
pub(crate) fn refuses(launch: &Launch) -> Option<String> {
    if let Some(image) = &launch.image {
        return Some(format!("image: `{image}`: this executor starts programs, not containers"));
    }
    if let Some(slice) = &launch.slice {
        return Some(format!("mig: `{slice}`: this executor cannot hand over slices of GPUs"));
    }
    refuses_but_images(launch)
}

/// The first thing that makes a launch impossible, images and slices apart.
pub(crate) fn refuses_but_images(launch: &Launch) -> Option<String> {
    if launch.command.first().is_none_or(String::is_empty) {
        return Some("command: is empty; the program comes first".to_owned());
    }
    if !(1..=MOST_RANKS).contains(&launch.ranks.len()) {
        let count = launch.ranks.len();
        return Some(format!("ranks: {count} were given, 1 to {MOST_RANKS} are allowed"));
    }
    for word in &launch.command {
        if word.contains('\0') || word.len() > LONGEST_WORD {
            return Some(format!(
                "command: a word has a zero byte, or more than {LONGEST_WORD} bytes"
            ));
        }
    }
    let plain = launch.env.iter().map(|(name, value)| (name, value.as_str()));
    let own = launch.ranks.iter().flat_map(|rank| &rank.env).map(|(n, v)| (n, v.as_str()));
    let hidden = launch.secrets.iter().map(|(name, value)| (name, value.expose()));
    for (name, value) in plain.chain(own).chain(hidden) {
        // A shell reads these on other machines, so that only names of its own kind are taken.
        let named = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
            && name.bytes().next().is_some_and(|b| !b.is_ascii_digit());
        if !named {
            return Some(format!(
                "env: `{name}` is no name of a variable: letters, digits and _, no digit first"
            ));
        }
        if value.contains('\0') || name.len() + value.len() + 2 > LONGEST_WORD {
            return Some(format!("env: {name} has a zero byte, or more than {LONGEST_WORD} bytes"));
        }
    }
    if let Some(folder) = &launch.folder
        && !folder.is_absolute()
    {
        return Some(format!("folder: `{}` is not absolute", folder.display()));
    }
    None
}
