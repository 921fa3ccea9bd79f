//! Where the lab keeps what it made, and how it knows that something must be made again.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use super::host::{Result, on};

/// The cache: `GILK_CACHE`, else `.cache` in the source tree where there is one, else the user's cache directory.
pub(super) fn default_directory(source: &Path) -> PathBuf {
    let set = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    if let Some(own) = set("GILK_CACHE") {
        return own;
    }
    if source.join("Cargo.toml").is_file() {
        return source.join(".cache");
    }
    set("XDG_CACHE_HOME")
        .or_else(|| set("HOME").map(|home| home.join(".cache")))
        .unwrap_or_else(std::env::temp_dir)
        .join("gilk")
}

/// Keeps two programs from preparing the same cache at once: the second waits. Released on drop.
pub(super) fn lock(cache: &Path) -> Result<File> {
    fs::create_dir_all(cache).map_err(on("create the cache", cache))?;
    let path = cache.join("lock");
    let file = File::create(&path).map_err(on("create", &path))?;
    file.lock().map_err(on("lock", &path))?;
    Ok(file)
}

/// What something is made from, as one number: equal fingerprints, equal inputs.
///
/// Only ever compared with one that the same program wrote before, so another number from another
/// version of the standard library costs a build and nothing else.
#[derive(Default)]
pub(super) struct Fingerprint(DefaultHasher);

impl Fingerprint {
    /// Adds some text: a version, a path, an option.
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        text.hash(&mut self.0);
        self
    }

    /// Adds a file's name, length and time of change, without reading it.
    pub(super) fn state_of(&mut self, path: &Path) -> Result<&mut Self> {
        let about = fs::metadata(path).map_err(on("look at", path))?;
        path.hash(&mut self.0);
        about.len().hash(&mut self.0);
        about
            .modified()
            .map_err(on("look at", path))?
            .hash(&mut self.0);
        Ok(self)
    }

    /// Adds a file's name and everything in it.
    pub(super) fn contents_of(&mut self, path: &Path) -> Result<&mut Self> {
        let bytes = fs::read(path).map_err(on("read", path))?;
        path.file_name().hash(&mut self.0);
        bytes.hash(&mut self.0);
        Ok(self)
    }

    /// The number, as text.
    pub(super) fn finish(&self) -> String {
        format!("{:016x}", self.0.finish())
    }
}

/// Whether `product` was made from inputs with this fingerprint.
pub(super) fn is_fresh(product: &Path, fingerprint: &str) -> bool {
    product.is_file()
        && fs::read_to_string(stamp_of(product)).is_ok_and(|stamp| stamp == fingerprint)
}

/// Notes that `product` has just been made from inputs with this fingerprint.
pub(super) fn mark_fresh(product: &Path, fingerprint: &str) -> Result<()> {
    let stamp = stamp_of(product);
    fs::write(&stamp, fingerprint).map_err(on("write", &stamp))
}

fn stamp_of(product: &Path) -> PathBuf {
    let mut name = product.file_name().unwrap_or_default().to_owned();
    name.push(".stamp");
    product.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_is_fresh_only_with_its_own_inputs_and_while_it_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let input = directory.path().join("input");
        let product = directory.path().join("product");
        let print = || Fingerprint::default().contents_of(&input).unwrap().finish();
        fs::write(&input, "one").unwrap();
        let first = print();
        assert!(!is_fresh(&product, &first));
        fs::write(&product, "made").unwrap();
        mark_fresh(&product, &first).unwrap();
        assert!(is_fresh(&product, &print()));
        fs::write(&input, "two").unwrap();
        assert!(!is_fresh(&product, &print()));
        fs::remove_file(&product).unwrap();
        assert!(!is_fresh(&product, &first));
    }
}
