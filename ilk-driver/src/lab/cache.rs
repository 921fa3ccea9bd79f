//! The lab's cache, and the freshness of its products.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use super::host::{StepResult, on};
use super::source::Source;

/// Returns the cache's folder: `GILK_CACHE`, otherwise `.cache` in the source tree if there is one,
/// otherwise the user's cache directory.
pub(super) fn default_directory(source: &Source) -> PathBuf {
    let set = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    if let Some(directory) = set("GILK_CACHE") {
        return directory;
    }
    match source {
        Source::Tree(tree) if Source::is_tree(tree) => return tree.join(".cache"),
        Source::Tree(_) | Source::Installed(_) => {}
    }
    set("XDG_CACHE_HOME")
        .or_else(|| set("HOME").map(|home| home.join(".cache")))
        .unwrap_or_else(std::env::temp_dir)
        .join("gilk")
}

/// Locks the cache, so that only one program prepares it at a time. Released on drop.
pub(super) fn lock(cache: &Path) -> StepResult<File> {
    fs::create_dir_all(cache).map_err(on("create the cache", cache))?;
    let path = cache.join("lock");
    let file = File::create(&path).map_err(on("create", &path))?;
    file.lock().map_err(on("lock", &path))?;
    Ok(file)
}

/// A hash of a product's inputs.
///
/// It is only compared with hashes written by the same program, so a change of the hash function in
/// another version of the standard library costs one rebuild.
#[derive(Default)]
pub(super) struct Fingerprint(DefaultHasher);

impl Fingerprint {
    /// Adds a text: a version, a path, an option.
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        text.hash(&mut self.0);
        self
    }

    /// Adds a file's name, length and modification time, without reading it.
    pub(super) fn state_of(&mut self, path: &Path) -> StepResult<&mut Self> {
        let metadata = fs::metadata(path).map_err(on("read the metadata of", path))?;
        path.hash(&mut self.0);
        metadata.len().hash(&mut self.0);
        metadata
            .modified()
            .map_err(on("read the metadata of", path))?
            .hash(&mut self.0);
        Ok(self)
    }

    /// Adds a file's name and contents.
    pub(super) fn contents_of(&mut self, path: &Path) -> StepResult<&mut Self> {
        let bytes = fs::read(path).map_err(on("read", path))?;
        path.file_name().hash(&mut self.0);
        bytes.hash(&mut self.0);
        Ok(self)
    }

    /// Returns the hash as text.
    pub(super) fn finish(&self) -> String {
        format!("{:016x}", self.0.finish())
    }
}

/// Returns whether `product` was built from inputs with this fingerprint.
pub(super) fn is_fresh(product: &Path, fingerprint: &str) -> bool {
    product.is_file()
        && fs::read_to_string(stamp_of(product)).is_ok_and(|stamp| stamp == fingerprint)
}

/// Records that `product` was built from inputs with this fingerprint.
pub(super) fn mark_fresh(product: &Path, fingerprint: &str) -> StepResult<()> {
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
    fn a_product_is_fresh_while_it_exists_and_its_inputs_are_unchanged() {
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
