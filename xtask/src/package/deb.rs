//! One Debian package: a folder with its files, and its control data (deb-control(5)).

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fail::{Fail, Result};
use crate::tool;

/// The maintainer that packages name.
const MAINTAINER: &str = "GILK <gilk@localhost>";

/// Machines that a package is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Architecture {
    /// x86-64.
    Amd64,
    /// Every one: it has no compiled files.
    All,
}

impl Architecture {
    /// Returns its name in Debian.
    fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::All => "all",
        }
    }
}

/// Fields of a package.
pub(super) struct Control {
    pub(super) name: &'static str,
    pub(super) version: &'static str,
    pub(super) architecture: Architecture,
    /// Beside the libraries of its programs.
    pub(super) depends: Vec<String>,
    pub(super) recommends: String,
    pub(super) summary: &'static str,
    pub(super) description: &'static str,
}

impl Control {
    /// Returns the text of the file `control`.
    fn text(&self, libraries: &[String], kibibytes: u64) -> String {
        let architecture = self.architecture.name();
        let mut text = format!(
            "Package: {}\nVersion: {}\nArchitecture: {architecture}\nMaintainer: {MAINTAINER}\n\
             Section: devel\nPriority: optional\nInstalled-Size: {kibibytes}\n",
            self.name, self.version
        );
        let depends = [libraries, &self.depends].concat();
        let _ = writeln!(text, "Depends: {}", depends.join(", "));
        let _ = writeln!(text, "Recommends: {}", self.recommends);
        let _ = writeln!(text, "Description: {}", self.summary);
        for line in self.description.lines() {
            let _ = writeln!(text, " {}", line.trim());
        }
        text
    }
}

/// A package that is being assembled.
pub(super) struct Deb {
    control: Control,
    /// Its files, as they will be below `/`.
    tree: PathBuf,
    /// Programs whose libraries it depends on.
    programs: Vec<PathBuf>,
    bytes: u64,
}

impl Deb {
    pub(super) fn new(home: &Path, control: Control) -> Result<Self> {
        let tree = home.join(control.name);
        let debian = tree.join("DEBIAN");
        fs::create_dir_all(&debian).map_err(failed("create", &debian))?;
        Ok(Self {
            control,
            tree,
            programs: Vec::new(),
            bytes: 0,
        })
    }

    /// Adds a program without its symbols. The package depends on its libraries.
    pub(super) fn program(&mut self, built: &Path, path: &str) -> Result<()> {
        let goal = self.static_program(built, path)?;
        self.programs.push(goal);
        Ok(())
    }

    /// Adds a program that needs no libraries.
    pub(super) fn static_program(&mut self, built: &Path, path: &str) -> Result<PathBuf> {
        let goal = self.place(path)?;
        tool::run(Command::new("strip").arg("-o").arg(&goal).arg(built))?;
        self.added(&goal, 0o755)?;
        Ok(goal)
    }

    pub(super) fn copy(&mut self, from: &Path, path: &str) -> Result<()> {
        let goal = self.place(path)?;
        fs::copy(from, &goal).map_err(failed("copy", from))?;
        self.added(&goal, 0o644)
    }

    pub(super) fn write(&mut self, path: &str, text: &str) -> Result<()> {
        let goal = self.place(path)?;
        fs::write(&goal, text).map_err(failed("write", &goal))?;
        self.added(&goal, 0o644)
    }

    /// Adds a manual page, compressed as Debian's policy requires.
    pub(super) fn manual(&mut self, name: &str, section: &str, page: &str) -> Result<()> {
        let path = format!("usr/share/man/man{section}/{name}.{section}");
        self.write(&path, page)?;
        tool::run(Command::new("gzip").args(["-9n"]).arg(self.tree.join(path)))
    }

    /// Adds a script that dpkg runs.
    pub(super) fn script(&mut self, name: &str, text: &str) -> Result<()> {
        let goal = self.tree.join("DEBIAN").join(name);
        fs::write(&goal, text).map_err(failed("write", &goal))?;
        mode(&goal, 0o755)
    }

    /// Adds the licences as the file `copyright`.
    pub(super) fn legal(&mut self, files: &[&str]) -> Result<()> {
        let mut text = String::from("GILK may be used under any one of the licences below.\n");
        for file in files {
            let path = tool::root().join(file);
            let licence = fs::read_to_string(&path).map_err(failed("read", &path))?;
            let _ = write!(text, "\n{}\n\n{licence}", "=".repeat(72));
        }
        self.write(
            &format!("usr/share/doc/{}/copyright", self.control.name),
            &text,
        )
    }

    /// Writes the package's file, and returns its path.
    pub(super) fn build(&self) -> Result<PathBuf> {
        let libraries = libraries(&self.programs)?;
        let text = self.control.text(&libraries, self.bytes.div_ceil(1024));
        let goal = self.tree.join("DEBIAN/control");
        fs::write(&goal, text).map_err(failed("write", &goal))?;
        let home = self.tree.parent().unwrap_or(&self.tree);
        tool::run(
            Command::new("dpkg-deb")
                .args(["--build", "--root-owner-group", "-Zxz"])
                .arg(&self.tree)
                .arg(home),
        )?;
        let control = &self.control;
        Ok(home.join(format!(
            "{}_{}_{}.deb",
            control.name,
            control.version,
            control.architecture.name()
        )))
    }

    /// Returns the path of a new file, whose folders exist.
    fn place(&self, path: &str) -> Result<PathBuf> {
        let goal = self.tree.join(path);
        let folder = goal.parent().unwrap_or(&self.tree);
        fs::create_dir_all(folder).map_err(failed("create", folder))?;
        Ok(goal)
    }

    fn added(&mut self, goal: &Path, permissions: u32) -> Result<()> {
        mode(goal, permissions)?;
        self.bytes += fs::metadata(goal).map_err(failed("read", goal))?.len();
        Ok(())
    }
}

/// Returns the packages of the libraries that programs load, as `dpkg-shlibdeps` finds them.
fn libraries(programs: &[PathBuf]) -> Result<Vec<String>> {
    if programs.is_empty() {
        return Ok(Vec::new());
    }
    // It reads the source package's control file, which needs one paragraph.
    let home = tool::results()?.join("package/libraries");
    fs::create_dir_all(home.join("debian")).map_err(failed("create", &home))?;
    let control = home.join("debian/control");
    fs::write(&control, "Source: gilk\n").map_err(failed("write", &control))?;
    let mut finder = Command::new("dpkg-shlibdeps");
    finder.arg("-O").current_dir(&home);
    for program in programs {
        finder.arg("-e").arg(program);
    }
    let answer = tool::output(&mut finder)
        .ok_or_else(|| Fail::new("dpkg-shlibdeps failed; is dpkg-dev installed?"))?;
    let found = answer
        .lines()
        .find_map(|line| line.strip_prefix("shlibs:Depends="))
        .ok_or_else(|| Fail::new(format!("dpkg-shlibdeps printed no libraries: {answer}")))?;
    Ok(found.split(", ").map(str::to_owned).collect())
}

fn mode(path: &Path, permissions: u32) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(permissions))
        .map_err(failed("set the mode of", path))
}

fn failed(verb: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Fail {
    let path = path.display().to_string();
    move |error| Fail::new(format!("cannot {verb} {path}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_data_has_every_field_on_its_line() {
        let control = Control {
            name: "ilk",
            version: "1.2.3",
            architecture: Architecture::Amd64,
            depends: vec!["kmod".into()],
            recommends: "ilk-dkms".into(),
            summary: "short",
            description: "first\n   second",
        };
        let text = control.text(&["libc6 (>= 2.36)".to_owned()], 12);
        assert!(text.starts_with("Package: ilk\nVersion: 1.2.3\nArchitecture: amd64\n"));
        assert!(text.contains("\nInstalled-Size: 12\nDepends: libc6 (>= 2.36), kmod\n"));
        assert!(
            text.ends_with("\nDescription: short\n first\n second\n"),
            "{text}"
        );
    }
}
