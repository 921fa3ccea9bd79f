//! A session: placements of instruments with launch and splash. Saved as RON.

mod kernel_part;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gilk_samples::HookType;
use serde::{Deserialize, Serialize};

use crate::collection::Collection;
use crate::placement::Style;
use crate::{Error, Result};

pub use kernel_part::KernelPart;

/// An instrumentation (GILK report, 3.2): a set of instruments with launch and splash times, and
/// what to run while it lasts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Session {
    /// Format of the file: [`Session::VERSION`].
    pub version: u32,
    /// Its name, for people.
    pub name: String,
    /// Seconds from the start to the end; every instrument has splashed by then.
    pub duration: f64,
    /// A program of the lab to run during the session.
    #[serde(default)]
    pub workload: Option<Workload>,
    /// The instruments, in the order in which they run where they share a hook.
    pub placements: Vec<Placement>,
    /// Styles of functions, by symbol; [`Style::InPlace`] by default.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub styles: BTreeMap<String, Style>,
    /// Instruments of the session's own, in the language, by name. The library has the others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sources: BTreeMap<String, String>,
    /// True if instruments save every register that they use, and the flags, even where those are dead: to
    /// do without the analysis, and to measure its gain.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub save_all: bool,
    /// True if the target's tracepoints whose functions (`__traceiter_NAME`) have placements are switched on while the
    /// session runs. Otherwise those functions run only while another user has switched the tracepoint on. In a process,
    /// the same of static probes at whose blocks placements stand, by their semaphores.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tracepoints: bool,
    /// The collection of samples and totals.
    #[serde(default, skip_serializing_if = "Collection::is_default")]
    pub collection: Collection,
    /// For a session of a process: what is placed in the kernel of the machine at the same time. Programs that do not
    /// know it refuse the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<KernelPart>,
}

/// A program to run while a session lasts. Only the lab runs one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Path in the target: `/bin/pulsar`.
    pub program: String,
    /// Arguments of the program.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// Seconds from the start of the session.
    #[serde(default)]
    pub start: f64,
}

/// One instrument at one hook.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "SavedPlacement")]
pub struct Placement {
    /// Kernel symbol. Placements of one function may share it.
    #[serde(with = "name")]
    pub function: Arc<str>,
    /// Index of the block in the function's graph.
    pub block: u32,
    /// Before or after the block.
    pub hook: HookType,
    /// Name of the instrument in the library, which placements may share too.
    #[serde(with = "name")]
    pub instrument: Arc<str>,
    /// Seconds from the start.
    pub launch: f64,
    /// Seconds from the start.
    pub splash: f64,
}

/// A placement as files have it, those of earlier versions included.
#[derive(Deserialize)]
#[serde(rename = "Placement", deny_unknown_fields)]
struct SavedPlacement {
    #[serde(with = "name")]
    function: Arc<str>,
    block: u32,
    hook: HookType,
    #[serde(with = "name")]
    instrument: Arc<str>,
    launch: f64,
    splash: f64,
    /// Earlier versions numbered the timers of `elapsed-start` and `elapsed-stop`.
    #[serde(default)]
    timer: u8,
}

impl TryFrom<SavedPlacement> for Placement {
    type Error = String;

    /// Accepts timer 0, and a number that the instrument has no use for.
    fn try_from(saved: SavedPlacement) -> std::result::Result<Self, String> {
        let SavedPlacement {
            function,
            block,
            hook,
            instrument,
            launch,
            splash,
            timer,
        } = saved;
        if timer != 0 && matches!(&*instrument, "elapsed-start" | "elapsed-stop") {
            return Err(format!(
                "{instrument} at {function} block {block} names timer {timer}, and timers have no numbers any more; for a second pair give copies of elapsed-start and elapsed-stop other names in `sources`, with another name for @timer in both"
            ));
        }
        Ok(Self {
            function,
            block,
            hook,
            instrument,
            launch,
            splash,
        })
    }
}

/// Names as text.
mod name {
    use std::sync::Arc;

    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(name: &str, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(name)
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Arc<str>, D::Error> {
        String::deserialize(from).map(Arc::from)
    }
}

impl Session {
    /// The format that this version writes.
    pub const VERSION: u32 = 1;

    /// A session with nothing in it.
    #[must_use]
    pub fn empty() -> Self {
        Self {
            version: Self::VERSION,
            name: String::from("untitled"),
            duration: 10.0,
            workload: None,
            placements: Vec::new(),
            styles: BTreeMap::new(),
            sources: BTreeMap::new(),
            save_all: false,
            tracepoints: false,
            collection: Collection::default(),
            kernel: None,
        }
    }

    /// The style of a function.
    #[must_use]
    pub fn style(&self, function: &str) -> Style {
        self.styles.get(function).copied().unwrap_or_default()
    }

    /// Reads a session file's text and checks every field.
    ///
    /// # Errors
    /// [`Error::Session`] with line and column, or with the placement and the field that is wrong.
    pub fn from_ron(text: &str) -> Result<Self> {
        let mut session: Self = ron::from_str(text).map_err(|source| Error::Session {
            reason: source.to_string(),
        })?;
        session.share_names();
        session.check()?;
        Ok(session)
    }

    /// Interns equal names.
    fn share_names(&mut self) {
        let mut known: BTreeSet<Arc<str>> = BTreeSet::new();
        let kernel = self.kernel.iter_mut().flat_map(|part| &mut part.placements);
        for placement in self.placements.iter_mut().chain(kernel) {
            for name in [&mut placement.function, &mut placement.instrument] {
                match known.get(&**name) {
                    Some(known) => *name = Arc::clone(known),
                    None => drop(known.insert(Arc::clone(name))),
                }
            }
        }
    }

    /// The text to save.
    ///
    /// # Errors
    /// [`Error::Session`] if the session is not one that could be read back.
    pub fn to_ron(&self) -> Result<String> {
        self.check()?;
        ron::ser::to_string_pretty(self, ron::ser::PrettyConfig::default().struct_names(true))
            .map_err(|source| Error::Session {
                reason: source.to_string(),
            })
    }

    /// Checks versions, times and numbers. Only a plan checks that functions and blocks exist.
    ///
    /// # Errors
    /// [`Error::Session`], naming the field.
    pub fn check(&self) -> Result<()> {
        let wrong = |reason: String| Err(Error::Session { reason });
        if self.version != Self::VERSION {
            return wrong(format!(
                "its version is {}, and this program reads version {}",
                self.version,
                Self::VERSION
            ));
        }
        if !self.duration.is_finite() || self.duration <= 0.0 {
            return wrong(format!(
                "its duration is {}, and must be a positive number of seconds",
                self.duration
            ));
        }
        if let Some(workload) = &self.workload
            && !(workload.start.is_finite() && (0.0..=self.duration).contains(&workload.start))
        {
            return wrong(format!(
                "its workload starts at {} s, outside 0 to {} s",
                workload.start, self.duration
            ));
        }
        self.collection.check().or_else(wrong)?;
        let placements = self.placements.iter().enumerate();
        let kernel = self.kernel.iter().flat_map(|part| &part.placements);
        let all = placements
            .map(|(number, placement)| ("placement", number, placement))
            .chain(
                (kernel.enumerate())
                    .map(|(number, placement)| ("kernel's placement", number, placement)),
            );
        for (what, number, placement) in all {
            let named = format!(
                "{what} {number} ({} at {} block {})",
                placement.instrument, placement.function, placement.block
            );
            let Placement { launch, splash, .. } = *placement;
            if !(launch.is_finite()
                && splash.is_finite()
                && 0.0 <= launch
                && launch < splash
                && splash <= self.duration)
            {
                return wrong(format!(
                    "{named} launches at {launch} s and splashes at {splash} s; it must launch at 0 or later, splash after that, and not after the session's end at {} s",
                    self.duration
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn placement() -> impl Strategy<Value = Placement> {
        (
            "[a-z_]{1,20}",
            0u32..1000,
            any::<bool>(),
            "[a-z-]{1,12}",
            0.0..50.0f64,
            0.001..50.0f64,
        )
            .prop_map(
                |(function, block, pre, instrument, launch, lasts)| Placement {
                    function: function.into(),
                    block,
                    hook: if pre { HookType::Pre } else { HookType::Post },
                    instrument: instrument.into(),
                    launch,
                    splash: launch + lasts,
                },
            )
    }

    proptest! {
        #[test]
        fn what_is_saved_is_read_back(
            name in ".*",
            placements in prop::collection::vec(placement(), 0..20),
            styles in prop::collection::btree_map("[a-z_]{1,20}", prop::sample::select(Style::ALL.to_vec()), 0..4),
            run: bool,
        ) {
            let workload =
                run.then(|| Workload { program: "/bin/pulsar".into(), arguments: vec![name.clone()], start: 1.5 });
            let session = Session { name, duration: 100.0, workload, placements, styles, ..Session::empty() };
            prop_assert_eq!(Session::from_ron(&session.to_ron().unwrap()).unwrap(), session);
        }

        #[test]
        fn no_text_makes_it_panic(text in ".{0,200}") {
            let _ = Session::from_ron(&text);
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let good = Placement {
            function: "kernel_clone".into(),
            block: 3,
            hook: HookType::Pre,
            instrument: "counter".into(),
            launch: 1.0,
            splash: 2.0,
        };
        let with = |change: fn(&mut Placement)| {
            let mut placement = good.clone();
            change(&mut placement);
            Session {
                placements: vec![good.clone(), placement],
                ..Session::empty()
            }
            .check()
        };
        assert_eq!(with(|_| ()), Ok(()));
        let wrong: [fn(&mut Placement); 6] = [
            |p| p.launch = -1.0,
            |p| p.launch = f64::NAN,
            |p| p.splash = f64::INFINITY,
            |p| p.splash = 1.0,
            |p| p.splash = 0.5,
            |p| p.splash = 10.5,
        ];
        for change in wrong {
            let error = with(change).unwrap_err().to_string();
            assert!(
                error.contains("placement 1") && error.contains("kernel_clone block 3"),
                "{error}"
            );
        }
        let error = |session: Session| session.check().unwrap_err().to_string();
        assert!(
            error(Session {
                version: 2,
                ..Session::empty()
            })
            .contains("version is 2")
        );
        assert!(
            error(Session {
                duration: f64::NAN,
                ..Session::empty()
            })
            .contains("duration")
        );
        let workload = Some(Workload {
            program: "p".into(),
            arguments: Vec::new(),
            start: 11.0,
        });
        assert!(
            error(Session {
                workload,
                ..Session::empty()
            })
            .contains("workload starts at 11 s")
        );

        let collection = Collection {
            grace: -1.0,
            ..Collection::default()
        };
        assert!(
            error(Session {
                collection,
                ..Session::empty()
            })
            .contains("grace is -1 s")
        );

        let text = Session::empty().to_ron().unwrap();
        assert!(
            !text.contains("styles") && !text.contains("collection"),
            "as older programs wrote it: {text}"
        );
        assert_eq!(
            Session::from_ron(&text).unwrap().style("kernel_clone"),
            Style::InPlace
        );
        let placed = |instrument: &str, timer: u8| {
            let placed = format!(
                "placements: [(function: \"f\", block: 2, hook: Pre, instrument: \"{instrument}\", launch: 0.0, splash: 1.0, timer: {timer})]"
            );
            Session::from_ron(&text.replace("placements: []", &placed))
        };
        assert!(placed("elapsed-stop", 0).is_ok() && placed("counter", 3).is_ok());
        let numbered = placed("elapsed-stop", 3).unwrap_err().to_string();
        assert!(
            numbered.contains("names timer 3") && numbered.contains("sources"),
            "{numbered}"
        );
        let unknown = Session::from_ron(&text.replace("duration", "length"))
            .unwrap_err()
            .to_string();
        assert!(
            unknown.contains("length") && unknown.contains(':'),
            "{unknown}"
        );
    }
}
