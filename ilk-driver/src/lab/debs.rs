//! Debian's kernels: downloaded by apt, unpacked into the cache, never installed on the host.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::apt::Apt;
use super::host::{StepResult, failed, on, output, run};
use super::steps::{At, Reporter};

/// The flavours with the suffixes of their packages' names: a small one for guests; one for every
/// machine; a fully preemptible one for every machine.
const FLAVOURS: [(&str, &str); 3] = [
    ("cloud", "cloud-amd64"),
    ("full", "amd64"),
    ("rt", "rt-amd64"),
];
/// Returns the directory into which the newest stock kernel of a flavour (of a suite like
/// `trixie-backports`, or of the host's release; of a series like 6.12, or of all) and its headers
/// are unpacked; and for another suite, the root in which its modules are built.
///
/// Queries apt only if its lists have changed since the last time, and keeps the cached kernel if
/// apt cannot deliver a newer one (without a network, for example).
pub(super) fn unpack(
    cache: &Path,
    suite: Option<&str>,
    series: Option<&str>,
    flavour: &str,
    reporter: &mut Reporter<'_>,
) -> StepResult<(PathBuf, Option<PathBuf>)> {
    let (_, suffix) = FLAVOURS
        .iter()
        .find(|(name, _)| *name == flavour)
        .ok_or_else(|| {
            failed(format!(
                "there is no flavour \"{flavour}\" of Debian's kernel; it has cloud, full and rt"
            ))
        })?;
    let home = cache.join("kernel");
    fs::create_dir_all(&home).map_err(on("create", &home))?;
    let mut choice = "current".to_owned();
    for part in suite
        .into_iter()
        .chain(series)
        .chain((flavour != "cloud").then_some(flavour))
    {
        choice.push('-');
        choice.push_str(part);
    }
    let choice = home.join(choice);
    let chosen = fs::read_to_string(&choice)
        .ok()
        .map(|name| home.join(name.trim()))
        .filter(|root| root.is_dir());
    let apt = Apt::new(suite, &home)?;
    if let Some(root) = &chosen
        && !is_newer(&apt.lists, &choice)
        && !apt.is_stale()
    {
        let build_root = suite.map(|suite| build_root(&apt, &home, suite, root, reporter));
        return Ok((root.clone(), build_root.transpose()?));
    }
    let newest = apt.update(reporter).and_then(|()| {
        let doing = format!("looking for the newest {flavour} kernel with apt");
        reporter.report(At::Kernel, doing, None);
        newest(&apt, &home, series, suffix, reporter)
    });
    let newest = match (newest, &chosen) {
        (Ok(root), _) => root,
        (Err(error), Some(root)) => {
            reporter.report(
                At::Kernel,
                format!("keeping the cached kernel: {error}"),
                None,
            );
            root.clone()
        }
        (Err(error), None) => return Err(error),
    };
    let name = newest
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    fs::write(&choice, name).map_err(on("write", &choice))?;
    if let Some(old) = chosen.filter(|old| *old != newest) {
        // Best effort: an old kernel only costs space.
        let _best_effort = fs::remove_dir_all(old);
    }
    let build_root = suite.map(|suite| build_root(&apt, &home, suite, &newest, reporter));
    Ok((newest, build_root.transpose()?))
}

/// Returns the image of an unpacked kernel: in `boot` up to Linux 7.1, with its modules since.
pub(super) fn image_in(root: &Path) -> StepResult<PathBuf> {
    let modules = fs::read_dir(root.join("usr/lib/modules"));
    let with_modules = modules
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("vmlinuz"));
    let boot = fs::read_dir(root.join("boot"))
        .into_iter()
        .flatten()
        .flatten();
    let in_boot = boot.map(|entry| entry.path()).filter(|path| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz-"))
    });
    in_boot
        .chain(with_modules)
        .find(|path| path.is_file())
        .ok_or_else(|| {
            failed(format!(
                "there is no vmlinuz in the packages unpacked to {}",
                root.display()
            ))
        })
}

/// Returns a root with the tools that build modules of a kernel: its compiler, and the C library
/// and others that its kbuild needs. Packages are unpacked, not installed.
fn build_root(
    apt: &Apt,
    home: &Path,
    suite: &str,
    kernel: &Path,
    reporter: &mut Reporter<'_>,
) -> StepResult<PathBuf> {
    /// Packages that makefiles of the kernel use besides the compiler.
    const TOOLS: [&str; 12] = [
        "base-files",
        "bash",
        "coreutils",
        "dash",
        "diffutils",
        "findutils",
        "grep",
        "make",
        "mawk",
        "perl-base",
        "sed",
        "zlib1g",
    ];
    let compiler = compiler(kernel)?;
    let root = home.join(format!("root-{suite}-{compiler}"));
    if root.is_dir() {
        return Ok(root);
    }
    reporter.report(
        At::Module,
        format!("unpacking the build tools of {suite}"),
        None,
    );
    let kbuild = fs::read_dir(kernel.join("usr/lib"))
        .map_err(on("list", &kernel.join("usr/lib")))?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .find(|name| name.starts_with("linux-kbuild-"))
        .ok_or_else(|| failed(format!("there is no kbuild in {}", kernel.display())))?;
    let answer = output(
        apt.command("apt-cache")
            .args(["depends", "--important", &kbuild]),
    )?;
    let answer = String::from_utf8_lossy(&answer);
    let libraries = dependencies(&answer).filter(|name| name.starts_with("lib"));
    let mut wanted: Vec<String> = TOOLS
        .iter()
        .copied()
        .chain(libraries)
        .map(str::to_owned)
        .collect();
    wanted.push(compiler.clone());
    let part = root.with_extension("part");
    // A folder by which the others' links to /usr exist comes first.
    unpack_all(apt, home, &["base-files".to_owned()], &part, true, reporter)?;
    unpack_all(apt, home, &apt.closure(&wanted)?, &part, false, reporter)?;
    for (link, target) in [("cc", compiler.as_str()), ("awk", "mawk")] {
        let link = part.join("usr/bin").join(link);
        std::os::unix::fs::symlink(target, &link).map_err(on("create", &link))?;
    }
    let module = part.join("module");
    fs::create_dir_all(&module).map_err(on("create", &module))?;
    fs::rename(&part, &root).map_err(on("rename", &part))?;
    Ok(root)
}

/// Returns the compiler that the headers name, like `gcc-14`.
fn compiler(kernel: &Path) -> StepResult<String> {
    let sources = kernel.join("usr/src");
    let headers = fs::read_dir(&sources).map_err(on("list", &sources))?;
    let variables = headers
        .flatten()
        .map(|entry| entry.path().join(".kernelvariables"));
    let mut texts = variables.filter_map(|file| fs::read_to_string(file).ok());
    let named = texts.find_map(|text| {
        let at = text.find("gcc-")?;
        let rest = text.get(at..)?;
        let end = rest
            .find(|c: char| c.is_ascii_whitespace())
            .unwrap_or(rest.len());
        rest.get(..end).map(str::to_owned)
    });
    named.ok_or_else(|| {
        failed(format!(
            "the headers in {} name no compiler in .kernelvariables",
            sources.display()
        ))
    })
}

fn is_newer(first: &Path, second: &Path) -> bool {
    let changed = |path: &Path| fs::metadata(path).and_then(|about| about.modified());
    matches!((changed(first), changed(second)), (Ok(first), Ok(second)) if first > second)
}

/// Determines the packages of the newest kernel, and downloads and unpacks it if it is not cached.
fn newest(
    apt: &Apt,
    home: &Path,
    series: Option<&str>,
    suffix: &str,
    reporter: &mut Reporter<'_>,
) -> StepResult<PathBuf> {
    let packages = resolve(apt, series, suffix)?;
    let image = packages
        .first()
        .ok_or_else(|| failed("a kernel has no packages"))?;
    let root = home.join(format!("{image}_{}", version_of(apt, image)?));
    if root.is_dir() && image_in(&root).is_ok() {
        return Ok(root);
    }
    if root.exists() {
        fs::remove_dir_all(&root).map_err(on("remove", &root))?;
    }
    let part = root.with_extension("part");
    unpack_all(apt, home, &packages, &part, true, reporter)?;
    // A kernel whose packages are not understood is not kept as the current one.
    image_in(&part)?;
    fs::rename(&part, &root).map_err(on("rename", &part))?;
    Ok(root)
}

/// Downloads packages and unpacks them into a folder, which is emptied first if it is to be fresh.
fn unpack_all(
    apt: &Apt,
    home: &Path,
    packages: &[String],
    into: &Path,
    fresh: bool,
    reporter: &mut Reporter<'_>,
) -> StepResult<()> {
    let debs = home.join("debs");
    for directory in [Some(debs.as_path()), fresh.then_some(into)]
        .into_iter()
        .flatten()
    {
        if directory.exists() {
            fs::remove_dir_all(directory).map_err(on("empty", directory))?;
        }
        fs::create_dir_all(directory).map_err(on("create", directory))?;
    }
    download(apt, packages, &debs, reporter)?;
    let mut files: Vec<PathBuf> = fs::read_dir(&debs)
        .map_err(on("list", &debs))?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .collect();
    files.sort();
    if files.len() != packages.len() {
        return Err(failed(format!(
            "apt-get downloaded {} packages of {}: {}",
            files.len(),
            packages.len(),
            packages.join(" ")
        )));
    }
    for (number, file) in files.iter().enumerate() {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        reporter.report(
            At::Kernel,
            format!("unpacking {name}"),
            Some(0.7 + 0.3 * number as f32 / files.len() as f32),
        );
        run(
            Command::new("dpkg-deb").arg("-x").arg(file).arg(into),
            &mut |_| (),
        )?;
    }
    let _best_effort = fs::remove_dir_all(&debs);
    Ok(())
}

/// Returns the real packages: image, headers of the flavour, headers common to all flavours, and
/// kbuild; since Linux 6.19 those that the image's package only depends on.
fn resolve(apt: &Apt, series: Option<&str>, suffix: &str) -> StepResult<Vec<String>> {
    let image = newest_image(apt, series, suffix)?;
    let headers = image.replacen("linux-image-", "linux-headers-", 1);
    let common = one_dependency(apt, &headers, &["linux-headers-"])?;
    let kbuild = one_dependency(apt, &headers, &["linux-kbuild-"])?;
    let parts = ["linux-binary-", "linux-modules-", "linux-base-"];
    let answer = depends(apt, &image)?;
    let parts = dependencies(&answer)
        .filter(|name| parts.iter().any(|part| name.starts_with(part)))
        .map(str::to_owned);
    let parts: Vec<String> = parts.collect();
    Ok([vec![image, headers, common, kbuild], parts].concat())
}

/// Returns the package of the newest stock kernel: the one that the metapackage depends on, or of a
/// series without a metapackage, the one with the highest version.
fn newest_image(apt: &Apt, series: Option<&str>, suffix: &str) -> StepResult<String> {
    let Some(series) = series else {
        return one_dependency(apt, &format!("linux-image-{suffix}"), &["linux-image-"]);
    };
    let of_series = one_dependency(
        apt,
        &format!("linux-image-{series}-{suffix}"),
        &["linux-image-"],
    );
    let Err(error) = of_series else {
        return of_series;
    };
    let prefix = format!("linux-image-{series}.");
    let names = output(apt.command("apt-cache").args(["pkgnames", &prefix]))?;
    let names = String::from_utf8_lossy(&names);
    highest(names.lines(), &prefix, suffix).ok_or(error)
}

/// Returns the name with the highest version between `prefix` and `suffix`.
fn highest<'n>(names: impl Iterator<Item = &'n str>, prefix: &str, suffix: &str) -> Option<String> {
    let version = |name: &str| {
        let rest = name
            .strip_prefix(prefix)?
            .strip_suffix(suffix)?
            .strip_suffix('-')?;
        let (patch, build) = rest.split_once('+').unwrap_or((rest, ""));
        let is_plain = !rest.contains('-');
        Some((
            patch.parse::<u32>().ok().filter(|_| is_plain)?,
            build.to_owned(),
        ))
    };
    let versions = names.filter_map(|name| Some((version(name)?, name)));
    Some(versions.max()?.1.to_owned())
}

fn depends(apt: &Apt, package: &str) -> StepResult<String> {
    let answer = output(apt.command("apt-cache").args(["depends", "--important", package])).map_err(|error| {
        failed(format!(
            "apt has no package {package} ({error}). Run `apt-get update` as root; on a system without Debian's packages name a kernel with --kernel FILE and --headers DIR"
        ))
    })?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn one_dependency(apt: &Apt, package: &str, prefixes: &[&str]) -> StepResult<String> {
    dependencies(&depends(apt, package)?)
        .find(|name| prefixes.iter().any(|prefix| name.starts_with(prefix)))
        .map(str::to_owned)
        .ok_or_else(|| {
            failed(format!(
                "the package {package} depends on no package {}*, which the lab needs",
                prefixes.join("* or ")
            ))
        })
}

/// Parses the names in the output of `apt-cache depends`.
fn dependencies(answer: &str) -> impl Iterator<Item = &str> {
    answer
        .lines()
        .filter_map(|line| {
            line.trim_start_matches([' ', '|'])
                .strip_prefix("Depends: ")
        })
        .map(str::trim)
}

fn version_of(apt: &Apt, package: &str) -> StepResult<String> {
    let answer = output(
        apt.command("apt-cache")
            .args(["show", "--no-all-versions", package]),
    )?;
    String::from_utf8_lossy(&answer)
        .lines()
        .find_map(|line| line.strip_prefix("Version: "))
        .map(|version| version.trim().replace([':', '/', ' '], "_"))
        .ok_or_else(|| {
            failed(format!(
                "apt reports no version of {package}; run `apt-get update` as root"
            ))
        })
}

fn download(
    apt: &Apt,
    packages: &[String],
    into: &Path,
    reporter: &mut Reporter<'_>,
) -> StepResult<()> {
    let mut received = 0_usize;
    let mut command = apt.command("apt-get");
    command.arg("download").args(packages).current_dir(into);
    run(&mut command, &mut |line| {
        if line.starts_with("Get:") {
            received += 1;
            let done = 0.7 * received.saturating_sub(1) as f32 / packages.len().max(1) as f32;
            let what = line.split_whitespace().nth(4).unwrap_or("a package");
            reporter.report(At::Kernel, format!("downloading {what}"), Some(done));
        }
    })
    .map_err(|error| failed(format!("cannot download the kernel's packages: {error}\nCheck the network, and that `apt-get update` ran recently")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_version_of_a_series_is_chosen_and_no_other_flavour() {
        let names = [
            "linux-image-7.2.9+deb13-cloud-amd64",
            "linux-image-7.2.12+deb13-cloud-amd64",
            "linux-image-7.2.12+deb13-amd64",
            "linux-image-7.2.13+deb13-rt-amd64",
        ];
        let highest = |suffix| highest(names.into_iter(), "linux-image-7.2.", suffix);
        assert_eq!(highest("cloud-amd64").as_deref(), Some(names[1]));
        assert_eq!(highest("amd64").as_deref(), Some(names[2]));
    }

    #[test]
    fn an_image_is_found_in_boot_and_with_its_modules_and_its_absence_is_an_error() {
        let root = std::env::temp_dir().join(format!("gilk-image-{}", std::process::id()));
        for place in ["boot/vmlinuz-6.19", "usr/lib/modules/7.2/vmlinuz"] {
            let image = root.join(place);
            fs::create_dir_all(image.parent().unwrap()).unwrap();
            assert!(image_in(&root).is_err());
            fs::write(&image, "").unwrap();
            assert_eq!(image_in(&root).unwrap(), image);
            fs::remove_dir_all(&root).unwrap();
        }
    }

    #[test]
    fn dependencies_are_parsed_from_the_output_of_apt() {
        let answer = "linux-headers-6.1.0-56-cloud-amd64\n  Depends: linux-headers-6.1.0-56-common\n |Depends: linux-kbuild-6.1\n  Recommends: other\n";
        assert_eq!(
            dependencies(answer).collect::<Vec<_>>(),
            ["linux-headers-6.1.0-56-common", "linux-kbuild-6.1"]
        );
    }
}
