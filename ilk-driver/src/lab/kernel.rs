//! The lab's kernel: its image, its headers, its modules.

use std::fs;
use std::path::{Path, PathBuf};

use super::debs;
use super::host::{StepResult, failed, on};
use super::options::Options;
use super::steps::Reporter;

/// A kernel with its headers and modules.
#[derive(Clone, Debug)]
pub(super) struct LabKernel {
    /// The image that QEMU boots.
    pub(super) image: PathBuf,
    /// Its release, as `uname -r` reports it.
    pub(super) release: String,
    /// The headers for building modules.
    pub(super) headers: PathBuf,
    /// `lib/modules/RELEASE`, if it exists.
    pub(super) modules: Option<PathBuf>,
    /// The root in which modules are built, if they are not built with the host's tools; with the
    /// packages' folder that it needs.
    pub(super) build_root: Option<(PathBuf, PathBuf)>,
}

/// Finds the requested kernel, or downloads Debian's.
pub(super) fn locate(options: &Options, reporter: &mut Reporter<'_>) -> StepResult<LabKernel> {
    match (&options.kernel, &options.headers) {
        (None, None) => {
            let (root, build_root) = debs::unpack(
                &options.cache,
                options.suite.as_deref(),
                options.series.as_deref(),
                options.flavour.as_deref().unwrap_or("cloud"),
                reporter,
            )?;
            stock(&root, build_root)
        }
        (Some(image), Some(headers)) => custom(image, headers),
        (Some(image), None) => Err(failed(format!(
            "a kernel was given ({}) without its headers; name their directory with --headers, often /lib/modules/RELEASE/build",
            image.display()
        ))),
        (None, Some(headers)) => Err(failed(format!(
            "headers were given ({}) without their kernel; name its image with --kernel, often /boot/vmlinuz-RELEASE",
            headers.display()
        ))),
    }
}

/// Returns the kernel of Debian's packages, unpacked under `root`.
fn stock(root: &Path, build_root: Option<PathBuf>) -> StepResult<LabKernel> {
    let image = debs::image_in(root)?;
    let release = release_of(&image)?;
    let headers = root
        .join("usr/src")
        .join(format!("linux-headers-{release}"));
    // In a root of their own the headers are where their makefiles expect them.
    let moved_to = if build_root.is_some() {
        Path::new("")
    } else {
        root
    };
    point_to_common_headers(&headers.join("Makefile"), moved_to)?;
    let modules = ["lib/modules", "usr/lib/modules"]
        .iter()
        .map(|folder| root.join(folder).join(&release))
        .find(|path| path.is_dir());
    Ok(LabKernel {
        image,
        release,
        headers,
        modules,
        build_root: build_root.map(|build_root| (build_root, root.to_path_buf())),
    })
}

/// Returns a kernel and headers named by the user.
fn custom(image: &Path, headers: &Path) -> StepResult<LabKernel> {
    let release = release_of(image)?;
    let header = headers.join("include/generated/utsrelease.h");
    let text = fs::read_to_string(&header).map_err(on("read", &header))?;
    // A file without a quoted release differs from every kernel.
    let of_headers = text.split('"').nth(1).unwrap_or("of no release");
    if of_headers != release {
        return Err(failed(format!(
            "the kernel {} is {release}, but the headers in {} are {of_headers}; name a matching pair",
            image.display(),
            headers.display()
        )));
    }
    let places = [
        headers.parent().map(Path::to_path_buf),
        image
            .parent()
            .and_then(Path::parent)
            .map(|root| root.join("lib/modules").join(&release)),
        Some(Path::new("/lib/modules").join(&release)),
    ];
    let modules = places
        .into_iter()
        .flatten()
        .find(|path| path.join("modules.builtin").is_file());
    let absolute = |path: &Path| fs::canonicalize(path).map_err(on("find", path));
    Ok(LabKernel {
        image: absolute(image)?,
        release,
        headers: absolute(headers)?,
        modules,
        build_root: None,
    })
}

/// Corrects the makefile in the headers of a flavour, which names the common headers, and since Linux
/// 7.2 itself, by the absolute paths of installed packages.
fn point_to_common_headers(makefile: &Path, root: &Path) -> StepResult<()> {
    let text = fs::read_to_string(makefile).map_err(on("read", makefile))?;
    let moved = move_includes(&text, root);
    if moved == text {
        return Ok(());
    }
    fs::write(makefile, moved).map_err(on("write", makefile))
}

fn move_includes(makefile: &str, root: &Path) -> String {
    let move_line = |line: &str| {
        let moved = ["include ", "KBUILD_OUTPUT="].iter().find_map(|start| {
            let path = line.strip_prefix(start)?;
            let path = path.get(path.find("/usr/src/")?..)?;
            Some(format!("{start}{}{path}", root.display()))
        });
        moved.unwrap_or_else(|| line.to_owned())
    };
    makefile
        .split('\n')
        .map(move_line)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Reads the release of a bzImage from its header (Documentation/arch/x86/boot.rst:
/// `kernel_version`).
fn release_of(image: &Path) -> StepResult<String> {
    let bytes = fs::read(image).map_err(on("read the kernel", image))?;
    release_in(&bytes).ok_or_else(|| {
        failed(format!(
            "{} is not an x86 kernel image (bzImage); name a vmlinuz, not a vmlinux",
            image.display()
        ))
    })
}

fn release_in(image: &[u8]) -> Option<String> {
    if image.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let pointer = image.get(0x20e..0x210)?.first_chunk::<2>()?;
    let start = 0x200 + usize::from(u16::from_le_bytes(*pointer));
    let text: Vec<u8> = image
        .get(start..)?
        .iter()
        .copied()
        .take_while(|&byte| byte != 0 && byte != b' ')
        .take(128)
        .collect();
    String::from_utf8(text)
        .ok()
        .filter(|release| !release.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_headers_are_included_from_the_cache_after_every_move() {
        let fresh = "include /usr/src/linux-headers-6.1.0-56-common/Makefile\n";
        let first = move_includes(fresh, Path::new("/first/place"));
        assert_eq!(
            first,
            "include /first/place/usr/src/linux-headers-6.1.0-56-common/Makefile\n"
        );
        let second = move_includes(&first, Path::new("/second"));
        assert_eq!(
            second,
            "include /second/usr/src/linux-headers-6.1.0-56-common/Makefile\n"
        );
        let output = "KBUILD_OUTPUT=/usr/src/linux-headers-7.2.12+deb13-cloud-amd64\n";
        let moved = move_includes(output, Path::new("/place"));
        assert!(
            moved.starts_with("KBUILD_OUTPUT=/place/usr/src/linux-headers-7.2"),
            "{moved}"
        );
        assert_eq!(move_includes(&moved, Path::new("")), output);
        assert_eq!(
            move_includes("all:\n\tinclude\n", Path::new("/x")),
            "all:\n\tinclude\n"
        );
    }

    #[test]
    fn the_release_is_read_from_the_images_header() {
        let mut image = vec![0; 0x400];
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x20e..0x210].copy_from_slice(&0x100_u16.to_le_bytes());
        image[0x300..0x312].copy_from_slice(b"6.1.0-56-amd64 (x)");
        assert_eq!(release_in(&image).as_deref(), Some("6.1.0-56-amd64"));
        assert_eq!(release_in(b"\x7fELF"), None);
    }
}
