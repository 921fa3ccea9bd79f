//! The paths used last, by purpose, for the path dialogs.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::purpose::Purpose;

/// Maximum number of paths per purpose.
const MAX_PATHS: usize = 6;

/// The paths used last, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct RecentPaths(Vec<(Purpose, PathBuf)>);

impl RecentPaths {
    /// Adds a path, or moves it to the front.
    pub(crate) fn add(&mut self, purpose: Purpose, path: &Path) {
        let of = purpose.of_recent();
        // The window may be started in another folder the next time.
        let path = match std::path::absolute(path) {
            Ok(path) if purpose.is_file() => path,
            _ => path.to_path_buf(),
        };
        self.0
            .retain(|(purpose, known)| *purpose != of || *known != path);
        self.0.insert(0, (of, path));
        let mut count = 0;
        self.0.retain(|(purpose, _)| {
            count += usize::from(*purpose == of);
            *purpose != of || count <= MAX_PATHS
        });
    }

    /// Returns the paths of a purpose, newest first.
    pub(crate) fn of(&self, purpose: Purpose) -> impl Iterator<Item = &Path> {
        let of = purpose.of_recent();
        let paths = self.0.iter().filter(move |(purpose, _)| *purpose == of);
        paths.map(|(_, path)| path.as_path())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_paths_of_a_purpose_are_first_and_few() {
        let mut recent = RecentPaths::default();
        for number in 0..10 {
            recent.add(Purpose::SaveSession, Path::new(&format!("/s{number}.ron")));
        }
        recent.add(Purpose::OpenRecording, Path::new("/r.arrow"));
        recent.add(Purpose::OpenSession, Path::new("/s7.ron"));
        let sessions: Vec<_> = recent.of(Purpose::OpenSession).collect();
        let expected = [
            "/s7.ron", "/s9.ron", "/s8.ron", "/s6.ron", "/s5.ron", "/s4.ron",
        ];
        assert_eq!(sessions, expected.map(Path::new));
        let compared: Vec<_> = recent.of(Purpose::CompareRecording).collect();
        assert_eq!(compared, [Path::new("/r.arrow")]);
    }
}
