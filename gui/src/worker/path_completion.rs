//! Completion of typed paths, on a thread because folders can be large and disks slow.

use std::path::Path;

use super::mail::{Mail, Message};
use crate::purpose::Purpose;

/// Maximum number of completions.
const MOST: usize = 8;

/// Requests the completions of a path typed in the dialog with this number.
pub(crate) fn complete(mail: &Mail, dialog: u64, purpose: Purpose, typed: String) {
    mail.spawn("completion", move |mail| {
        let found = completions(purpose, &typed);
        mail.send(Message::Completed(dialog, typed, found));
    });
}

/// Returns the paths that begin with `typed`, folders first: their names end with a slash. Files are
/// those of the purpose. A folder that cannot be read has no completions.
fn completions(purpose: Purpose, typed: &str) -> Vec<String> {
    let (folder, begun) = typed
        .rsplit_once('/')
        .map_or(("", typed), |(folder, begun)| {
            (typed.get(..=folder.len()).unwrap_or_default(), begun)
        });
    let place = if folder.is_empty() { "." } else { folder };
    let Ok(entries) = std::fs::read_dir(place) else {
        return Vec::new();
    };
    let (_, endings) = purpose.filter();
    let is_wanted = |name: &str| {
        let matches = |ending: &str| ending == "*" || name.ends_with(&format!(".{ending}"));
        endings.iter().any(|ending| matches(ending))
    };
    let mut found: Vec<(bool, String)> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let is_hidden = name.starts_with('.') && !begun.starts_with('.');
            if is_hidden || !name.starts_with(begun) || name == begun {
                return None;
            }
            // Links to folders are folders.
            let is_folder = Path::new(place).join(&name).is_dir();
            let slash = if is_folder { "/" } else { "" };
            (is_folder || is_wanted(&name)).then(|| (!is_folder, format!("{folder}{name}{slash}")))
        })
        .collect();
    found.sort();
    found.truncate(MOST);
    found.into_iter().map(|(_, path)| path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_and_files_of_the_purpose_complete_a_path() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["one.ron", "only.txt", ".on.ron", "two.ron"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        std::fs::create_dir(folder.path().join("onions")).unwrap();
        let place = folder.path().display().to_string();
        let complete = |typed: &str| completions(Purpose::OpenSession, &format!("{place}/{typed}"));
        let expected = ["onions/", "one.ron"].map(|name| format!("{place}/{name}"));
        assert_eq!(complete("on"), expected);
        assert_eq!(complete(".o"), [format!("{place}/.on.ron")]);
        assert!(complete("one.ron").is_empty() && complete("absent/x").is_empty());
    }
}
