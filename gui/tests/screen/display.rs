//! Runs the program in a window on a virtual display, driven by mouse and keys; its contents are
//! known only through the list of widgets it writes.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Size of the display and of the window, in pixels.
pub(crate) const SIZE: (u32, u32) = (1600, 1000);
/// Time limit of anything that does not involve the lab.
pub(crate) const SOON: Duration = Duration::from_secs(90);
/// Duration from which a wait is logged.
const LOGGED: Duration = Duration::from_secs(2);

/// A widget on the screen.
#[derive(Clone, Debug)]
pub(crate) struct Widget {
    left: f32,
    top: f32,
    right: f32,
    bottom: f32,
    pub(crate) role: String,
    pub(crate) disabled: bool,
    pub(crate) name: String,
    pub(crate) value: String,
}

impl Widget {
    fn read(line: &str) -> Option<Self> {
        let parts: Vec<&str> = line.split('\t').collect();
        let [left, top, right, bottom, role, _, disabled, name, value] = parts[..] else {
            return None;
        };
        Some(Self {
            left: left.parse().ok()?,
            top: top.parse().ok()?,
            right: right.parse().ok()?,
            bottom: bottom.parse().ok()?,
            role: role.to_owned(),
            disabled: disabled == "disabled",
            name: name.to_owned(),
            value: value.to_owned(),
        })
    }

    /// Returns whether its name or text contains `words`.
    pub(crate) fn contains(&self, words: &str) -> bool {
        self.name.contains(words) || self.value.contains(words)
    }

    /// Returns whether its name, or for plain text the text, is `name`.
    fn is_called(&self, name: &str) -> bool {
        self.name == name || self.role == "Label" && self.value == name
    }

    /// Returns the middle of its left edge.
    pub(crate) fn left_middle(&self) -> (f32, f32) {
        (self.left, (self.top + self.bottom) / 2.0)
    }

    pub(crate) fn middle(&self) -> (f32, f32) {
        (
            (self.left + self.right) / 2.0,
            (self.top + self.bottom) / 2.0,
        )
    }
}

/// The display and the program on it. Dropping it ends both.
pub(crate) struct Screen {
    display: String,
    xvfb: Child,
    gilk: Child,
    widgets_path: PathBuf,
    pointer: (i32, i32),
}

impl Screen {
    /// Starts the program with `arguments` on a new display.
    pub(crate) fn open(folder: &Path, arguments: &[&str]) -> Self {
        let (width, height) = SIZE;
        let mut xvfb = Command::new("Xvfb")
            .args(["-displayfd", "1", "-nolisten", "tcp", "-screen", "0"])
            .arg(format!("{width}x{height}x24"))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("Xvfb is installed");
        let mut number = String::new();
        let mut stdout = xvfb.stdout.take().unwrap();
        let mut byte = [0];
        while stdout.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
            number.push(char::from(byte[0]));
        }
        let display = format!(":{}", number.trim());
        let widgets_path = folder.join("widgets");
        let gilk = Command::new(env!("CARGO_BIN_EXE_gilk"))
            .args(arguments)
            .args(["--size", &format!("{width}x{height}"), "--widgets"])
            .arg(&widgets_path)
            .arg("--state")
            .arg(folder.join("state"))
            .env("DISPLAY", &display)
            .env_remove("WAYLAND_DISPLAY")
            .env_remove("WAYLAND_SOCKET")
            // Mesa's software renderer draws alike on every machine.
            .env("LIBGL_ALWAYS_SOFTWARE", "1")
            .current_dir(folder)
            .spawn()
            .expect("the program starts");
        let mut screen = Self {
            display,
            xvfb,
            gilk,
            widgets_path,
            pointer: (0, 0),
        };
        screen.wait("the window opens", SOON, |screen| {
            screen.find(|_| true).map(drop)
        });
        // Without a window manager, the window gets no focus by itself.
        screen.tool(&[
            "search",
            "--sync",
            "--onlyvisible",
            "--name",
            "GILK",
            "windowfocus",
        ]);
        screen
    }

    fn tool(&self, arguments: &[&str]) {
        let done = Command::new("xdotool")
            .args(arguments)
            .env("DISPLAY", &self.display)
            .status()
            .expect("xdotool is installed");
        assert!(done.success(), "xdotool {arguments:?}: {done}");
    }

    /// Returns all widgets on the screen.
    pub(crate) fn all(&self) -> Vec<Widget> {
        let text = std::fs::read_to_string(&self.widgets_path).unwrap_or_default();
        text.lines().filter_map(Widget::read).collect()
    }

    /// Returns the first widget for which a condition holds.
    pub(crate) fn find(&self, so: impl Fn(&Widget) -> bool) -> Option<Widget> {
        self.all().into_iter().find(|widget| so(widget))
    }

    /// Polls a condition, for at most `long`.
    pub(crate) fn wait<T>(
        &mut self,
        what: &str,
        long: Duration,
        mut so: impl FnMut(&mut Self) -> Option<T>,
    ) -> T {
        let began = Instant::now();
        loop {
            if let Some(found) = so(self) {
                if began.elapsed() > LOGGED {
                    eprintln!("{what} after {:.1} s", began.elapsed().as_secs_f32());
                }
                return found;
            }
            if let Some(ended) = self.gilk.try_wait().unwrap() {
                panic!("{what}: the program has ended: {ended}");
            }
            let lost = self.find(|one| one.is_called("target lost")).is_some();
            if lost || began.elapsed() > long {
                let shown: Vec<String> = self
                    .all()
                    .iter()
                    .map(|one| format!("{} {:?} {:?}", one.role, one.name, one.value))
                    .collect();
                let why = if lost {
                    "the target is lost".to_owned()
                } else {
                    format!("not in {long:?}")
                };
                panic!("{what}: {why}; on the screen is\n{}", shown.join("\n"));
            }
            std::thread::sleep(Duration::from_millis(40));
        }
    }

    /// Waits for a widget with this name to be enabled and at rest, and returns it.
    pub(crate) fn named(&mut self, name: &str) -> Widget {
        let mut before = None;
        self.wait(&format!("{name:?} is on the screen"), SOON, |screen| {
            let found = screen.find(|one| one.is_called(name) && !one.disabled)?;
            let at = found.middle();
            (before.replace(at) == Some(at)).then_some(found)
        })
    }

    /// Waits until a widget contains `words`.
    pub(crate) fn words(&mut self, words: &str, long: Duration) -> Widget {
        self.wait(&format!("{words:?} is shown"), long, |screen| {
            screen.find(|one| one.contains(words))
        })
    }

    /// Waits until the number after `words` is as wanted, and returns it.
    pub(crate) fn number_after(&mut self, words: &str, is_wanted: impl Fn(u64) -> bool) -> u64 {
        self.wait(
            &format!("the wanted number after {words:?}"),
            SOON,
            |screen| {
                let shown = screen.find(|one| one.contains(words))?;
                let text = [&shown.name, &shown.value].map(|text| text.split_once(words));
                let (_, rest) = text.into_iter().flatten().next()?;
                let digits = rest.split(' ').next()?.replace(',', "");
                digits.parse().ok().filter(|number| is_wanted(*number))
            },
        )
    }

    /// Waits until no notice covers the window: notices stay while the pointer is over them.
    pub(crate) fn notices_go(&mut self) {
        let run = self.named("Run session");
        self.point(run.middle());
        self.gone("Dismiss message");
    }

    /// Waits until no widget contains `words`.
    pub(crate) fn gone(&mut self, words: &str) {
        self.wait(&format!("{words:?} is gone"), SOON, |screen| {
            screen
                .find(|one| one.contains(words))
                .is_none()
                .then_some(())
        });
    }

    fn move_to(&mut self, (x, y): (i32, i32)) {
        self.tool(&["mousemove", &x.to_string(), &y.to_string()]);
        self.pointer = (x, y);
        let line = format!("{x}\t{y}\n");
        self.wait("the pointer moves", SOON, |screen| {
            let text = std::fs::read_to_string(&screen.widgets_path).unwrap_or_default();
            text.starts_with(&line).then_some(())
        });
    }

    /// Moves the pointer, and waits until the window has drawn it.
    pub(crate) fn point(&mut self, (x, y): (f32, f32)) {
        let (x, y) = (x.round() as i32, y.round() as i32);
        if (x, y) == self.pointer {
            self.move_to((x, y + 1));
        }
        self.move_to((x, y));
    }

    /// Waits until the window has drawn the effects of all input. Events arrive in order: once the
    /// pointer has arrived, earlier events were handled; once it has arrived again, their effects
    /// are drawn.
    fn settle(&mut self) {
        let (x, y) = self.pointer;
        self.move_to((x, y + 1));
        self.move_to((x, y));
    }

    /// Clicks the widget with this name.
    pub(crate) fn click(&mut self, name: &str) {
        let at = self.named(name).middle();
        self.point(at);
        self.tool(&["click", "1"]);
        self.settle();
    }

    /// Drags a widget to the middle of another, which is located during the drag.
    pub(crate) fn drag(&mut self, from: &str, to: &str) {
        let from = self.named(from).middle();
        self.point(from);
        self.tool(&["mousedown", "1"]);
        self.settle();
        self.point((from.0 + 40.0, from.1 + 12.0));
        let to = self.named(to).middle();
        for step in 1..=4 {
            let share = step as f32 / 4.0;
            self.point((
                from.0 + (to.0 - from.0) * share,
                from.1 + (to.1 - from.1) * share,
            ));
        }
        self.tool(&["mouseup", "1"]);
        self.settle();
    }

    /// Presses keys, e.g. `ctrl+s`.
    pub(crate) fn press(&mut self, keys: &str) {
        self.tool(&["key", keys]);
        self.settle();
    }

    pub(crate) fn write(&mut self, text: &str) {
        self.tool(&["type", "--delay", "25", "--", text]);
        self.settle();
    }

    /// Replaces the contents of a field.
    pub(crate) fn fill(&mut self, name: &str, text: &str) {
        self.click(name);
        self.press("ctrl+a");
        self.write(text);
        let field = self.named(name);
        assert!(!field.value.is_empty(), "{name:?} stays empty");
    }

    /// Executes a command through the palette.
    pub(crate) fn run_command(&mut self, letters: &str) {
        self.press("ctrl+shift+p");
        self.named("Find command");
        self.write(letters);
        self.press("Return");
    }

    /// Presses keys that end the program, and returns whether it exited successfully.
    pub(crate) fn ends_by(&mut self, keys: &str) -> bool {
        // No frame is drawn that could be waited for.
        self.tool(&["key", keys]);
        let began = Instant::now();
        loop {
            if let Some(status) = self.gilk.try_wait().unwrap() {
                return status.success();
            }
            assert!(began.elapsed() < SOON, "the program does not end");
            std::thread::sleep(Duration::from_millis(40));
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        for child in [&mut self.gilk, &mut self.xvfb] {
            let _ended_already = child.kill();
            let _status = child.wait();
        }
    }
}
