//! Debian's kernels: downloaded by apt, unpacked into the cache, never installed on the host.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::host::{StepResult, failed, on, output, run};
use super::steps::{At, Reporter};

/// The flavours with the suffixes of their packages' names: a small one for guests; one for every
/// machine; a fully preemptible one for every machine.
const FLAVOURS: [(&str, &str); 3] = [
    ("cloud", "cloud-amd64"),
    ("full", "amd64"),
    ("rt", "rt-amd64"),
];
/// The folder of apt's lists. If it is newer than the cached choice of a kernel, apt is queried
/// again.
const APT_LISTS: &str = "/var/lib/apt/lists";

/// Returns the directory into which the newest stock kernel of a flavour (and of a series like
/// 6.12, or of all) and its headers are unpacked.
///
/// Queries apt only if its lists have changed since the last time, and keeps the cached kernel if
/// apt cannot deliver a newer one (without a network, for example).
pub(super) fn unpack(
    cache: &Path,
    series: Option<&str>,
    flavour: &str,
    reporter: &mut Reporter<'_>,
) -> StepResult<PathBuf> {
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
    for part in series
        .into_iter()
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
    if let Some(root) = &chosen
        && !is_newer(Path::new(APT_LISTS), &choice)
    {
        return Ok(root.clone());
    }
    reporter.report(
        At::Kernel,
        format!("looking for the newest {flavour} kernel with apt"),
        None,
    );
    let newest = match (newest(&home, series, suffix, reporter), &chosen) {
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
    Ok(newest)
}

fn is_newer(first: &Path, second: &Path) -> bool {
    let changed = |path: &Path| fs::metadata(path).and_then(|about| about.modified());
    matches!((changed(first), changed(second)), (Ok(first), Ok(second)) if first > second)
}

/// Determines the packages of the newest kernel, and downloads and unpacks it if it is not cached.
fn newest(
    home: &Path,
    series: Option<&str>,
    suffix: &str,
    reporter: &mut Reporter<'_>,
) -> StepResult<PathBuf> {
    let packages = resolve(series, suffix)?;
    let image = packages
        .first()
        .ok_or_else(|| failed("a kernel has no packages"))?;
    let root = home.join(format!("{image}_{}", version_of(image)?));
    if root.is_dir() {
        return Ok(root);
    }
    let debs = home.join("debs");
    let part = root.with_extension("part");
    for directory in [&debs, &part] {
        if directory.exists() {
            fs::remove_dir_all(directory).map_err(on("empty", directory))?;
        }
        fs::create_dir_all(directory).map_err(on("create", directory))?;
    }
    download(&packages, &debs, reporter)?;
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
            Command::new("dpkg-deb").arg("-x").arg(file).arg(&part),
            &mut |_| (),
        )?;
    }
    fs::rename(&part, &root).map_err(on("rename", &part))?;
    let _best_effort = fs::remove_dir_all(&debs);
    Ok(root)
}

/// Returns the real packages: image, headers of the flavour, headers common to all flavours, and
/// kbuild.
fn resolve(series: Option<&str>, suffix: &str) -> StepResult<Vec<String>> {
    let newest_of = |part: &str| newest_of(part, series, suffix);
    let image = one_dependency(&newest_of("image"), &["linux-image-"])?;
    let headers = one_dependency(&newest_of("headers"), &["linux-headers-"])?;
    let common = one_dependency(&headers, &["linux-headers-"])?;
    let kbuild = one_dependency(&headers, &["linux-kbuild-"])?;
    Ok(vec![image, headers, common, kbuild])
}

/// Returns the metapackage that depends on the newest stock kernel, or on its headers.
fn newest_of(part: &str, series: Option<&str>, suffix: &str) -> String {
    series.map_or_else(
        || format!("linux-{part}-{suffix}"),
        |series| format!("linux-{part}-{series}-{suffix}"),
    )
}

fn one_dependency(package: &str, prefixes: &[&str]) -> StepResult<String> {
    let answer = output(Command::new("apt-cache").args(["depends", "--important", package]).env("LC_ALL", "C")).map_err(|error| {
        failed(format!(
            "apt has no package {package} ({error}). Run `apt-get update` as root; on a system without Debian's packages name a kernel with --kernel FILE and --headers DIR"
        ))
    })?;
    dependencies(&String::from_utf8_lossy(&answer))
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

fn version_of(package: &str) -> StepResult<String> {
    let answer = output(
        Command::new("apt-cache")
            .args(["show", "--no-all-versions", package])
            .env("LC_ALL", "C"),
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

fn download(packages: &[String], into: &Path, reporter: &mut Reporter<'_>) -> StepResult<()> {
    let mut received = 0_usize;
    let mut command = Command::new("apt-get");
    // As root, apt would download as the user `_apt`, which may not write to the cache, and print a
    // warning.
    command
        .args(["-o", "APT::Sandbox::User=root", "download"])
        .args(packages)
        .current_dir(into)
        .env("LC_ALL", "C");
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
    use super::dependencies;

    #[test]
    fn dependencies_are_parsed_from_the_output_of_apt() {
        let answer = "linux-headers-6.1.0-56-cloud-amd64\n  Depends: linux-headers-6.1.0-56-common\n |Depends: linux-kbuild-6.1\n  Recommends: other\n";
        assert_eq!(
            dependencies(answer).collect::<Vec<_>>(),
            ["linux-headers-6.1.0-56-common", "linux-kbuild-6.1"]
        );
    }
}
