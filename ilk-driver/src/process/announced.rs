//! The recordings of the processes of one command, which announces each as it begins and as it is whole: lines of JSON.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// An announcement of `ilk clone --announce`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Announced {
    /// A recording has begun, and grows.
    Begun {
        /// Its place among the recordings of the command, in order of their beginnings.
        number: u32,
        /// The name of its process, which labels begin with in the recording of all.
        name: String,
        /// The file. Its totals up to now are in the file with `.live` added to the name.
        file: PathBuf,
    },
    /// It is whole, or was given up.
    Ended {
        /// That of its beginning.
        number: u32,
    },
}
