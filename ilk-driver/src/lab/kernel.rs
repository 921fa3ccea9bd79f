//! Which kernel the lab boots: its image, its headers, its modules.

use std::fs;
use std::path::{Path, PathBuf};

use super::host::{Result, failed, on};
use super::steps::Reporter;
use super::{Options, debs};

/// A kernel and what belongs to it.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    /// The image that QEMU boots.
    pub(super) image: PathBuf,
    /// `uname -r` of it.
    pub(super) release: String,
    /// Where modules are built against it.
    pub(super) headers: PathBuf,
    /// `lib/modules/RELEASE`, where it has one.
    pub(super) modules: Option<PathBuf>,
}

/// Finds the kernel that was asked for, or gets Debian's own.
pub(super) fn locate(options: &Options, reporter: &mut Reporter<'_>) -> Result<Kernel> {
    match (&options.kernel, &options.headers) {
        (None, None) => stock(&debs::unpacked(
            &options.cache,
            options.series.as_deref(),
            options.flavour.as_deref().unwrap_or("cloud"),
            reporter,
        )?),
        (Some(image), Some(headers)) => own(image, headers),
        (Some(image), None) => Err(failed(format!(
            "a kernel of yours was named ({}), but not its headers; name the directory that modules are built against with --headers, often /lib/modules/RELEASE/build",
            image.display()
        ))),
        (None, Some(headers)) => Err(failed(format!(
            "headers were named ({}), but not the kernel they belong to; name its image with --kernel, often /boot/vmlinuz-RELEASE",
            headers.display()
        ))),
    }
}

/// Debian's packages, unpacked side by side under `root`.
fn stock(root: &Path) -> Result<Kernel> {
    let boot = root.join("boot");
    let image = fs::read_dir(&boot)
        .map_err(on("list", &boot))?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .find(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz-"))
        })
        .ok_or_else(|| {
            failed(format!(
                "there is no vmlinuz in {}; delete {} to get the kernel again",
                boot.display(),
                root.display()
            ))
        })?;
    let release = release_of(&image)?;
    let headers = root
        .join("usr/src")
        .join(format!("linux-headers-{release}"));
    point_to_common_headers(&headers.join("Makefile"), root)?;
    let modules = ["lib/modules", "usr/lib/modules"]
        .iter()
        .map(|place| root.join(place).join(&release))
        .find(|path| path.is_dir());
    Ok(Kernel {
        image,
        release,
        headers,
        modules,
    })
}

/// Someone's own kernel and headers.
fn own(image: &Path, headers: &Path) -> Result<Kernel> {
    let release = release_of(image)?;
    let said = headers.join("include/generated/utsrelease.h");
    let text = fs::read_to_string(&said).map_err(on("read", &said))?;
    let of_headers = text.split('"').nth(1).unwrap_or_default();
    if of_headers != release {
        return Err(failed(format!(
            "the kernel {} is {release}, and the headers in {} are those of {of_headers}; name a pair that belongs together",
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
    Ok(Kernel {
        image: absolute(image)?,
        release,
        headers: absolute(headers)?,
        modules,
    })
}

/// Debian's headers of a flavour include those common to all by their absolute path, which is
/// wrong where packages are unpacked and not installed.
fn point_to_common_headers(makefile: &Path, root: &Path) -> Result<()> {
    let text = fs::read_to_string(makefile).map_err(on("read", makefile))?;
    let moved = move_includes(&text, root);
    if moved == text {
        return Ok(());
    }
    fs::write(makefile, moved).map_err(on("write", makefile))
}

fn move_includes(makefile: &str, root: &Path) -> String {
    let move_line = |line: &str| match line
        .strip_prefix("include ")
        .and_then(|path| path.find("/usr/src/").and_then(|at| path.get(at..)))
    {
        Some(path) => format!("include {}{path}", root.display()),
        None => line.to_owned(),
    };
    makefile
        .split('\n')
        .map(move_line)
        .collect::<Vec<_>>()
        .join("\n")
}

/// `uname -r` of a bzImage, from its header (Documentation/arch/x86/boot.rst: `kernel_version`).
fn release_of(image: &Path) -> Result<String> {
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
    fn common_headers_are_included_from_the_cache_however_often_it_moves() {
        let fresh = "include /usr/src/linux-headers-6.1.0-56-common/Makefile\n";
        let once = move_includes(fresh, Path::new("/first/place"));
        assert_eq!(
            once,
            "include /first/place/usr/src/linux-headers-6.1.0-56-common/Makefile\n"
        );
        let twice = move_includes(&once, Path::new("/second"));
        assert_eq!(
            twice,
            "include /second/usr/src/linux-headers-6.1.0-56-common/Makefile\n"
        );
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
