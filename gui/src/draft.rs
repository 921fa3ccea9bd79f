//! The instrument that the inspector would add.

use gilk_engine::HookType;
use gilk_instruments::Library;

/// The instrument that the inspector would add.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    /// Pre-hook or post-hook.
    pub hook: HookType,
    /// Name of the instrument.
    pub instrument: String,
    /// Launch in seconds.
    pub launch: f64,
    /// Splash in seconds.
    pub splash: f64,
    /// True while the splash is the end of the session, whatever that is.
    pub to_end: bool,
}

/// Returns the instrument that the inspector offers first.
pub(crate) fn first_instrument(library: &Library) -> String {
    let timestamp = library.get("timestamp").ok();
    let first = timestamp.or_else(|| library.iter().next());
    first.map(|first| first.name.clone()).unwrap_or_default()
}

impl Draft {
    pub(crate) fn new(duration: f64, library: &Library) -> Self {
        Self {
            hook: HookType::Pre,
            instrument: first_instrument(library),
            launch: 0.0,
            splash: duration,
            to_end: true,
        }
    }

    /// Sets the times to the whole of another session, which lasts so many seconds.
    pub(crate) fn reset(&mut self, duration: f64) {
        (self.launch, self.splash, self.to_end) = (0.0, duration, true);
    }

    /// Sets the splash, which follows the end of the session once it is there.
    pub(crate) fn set_splash(&mut self, splash: f64, duration: f64) {
        (self.splash, self.to_end) = (splash, splash == duration);
    }

    /// Keeps launch and splash inside a session of this duration.
    pub(crate) fn follow(&mut self, duration: f64) {
        self.to_end |= self.splash > duration;
        if self.to_end {
            self.splash = duration;
        }
        if self.launch >= self.splash {
            self.launch = 0.0;
        }
    }
}
