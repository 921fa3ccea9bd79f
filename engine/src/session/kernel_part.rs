//! The part of a session that is placed in the kernel while the rest of it is placed in a process.

use std::collections::BTreeMap;

use gilk_instruments::{Library, Source};
use serde::{Deserialize, Serialize};

use super::{Placement, Session};
use crate::placement::Style;
use crate::{Error, Result};

/// Placements in the kernel of the machine, for hits of the process that the session's other placements are in.
///
/// Name, duration, collection and `save_all` are the session's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelPart {
    /// As [`Session::placements`].
    pub placements: Vec<Placement>,
    /// As [`Session::styles`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub styles: BTreeMap<String, Style>,
    /// As [`Session::sources`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sources: BTreeMap<String, String>,
    /// As [`Session::tracepoints`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tracepoints: bool,
}

impl KernelPart {
    /// Returns the placements of a session, as the part of another one.
    #[must_use]
    pub fn of(session: Session) -> Self {
        Self {
            placements: session.placements,
            styles: session.styles,
            sources: session.sources,
            tracepoints: session.tracepoints,
        }
    }

    /// Returns whether nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Session {
    /// Returns the session of the [kernel's part](Session::kernel) alone: one of a kernel.
    #[must_use]
    pub fn of_kernel(&self) -> Option<Self> {
        let part = self.kernel.clone()?;
        Some(Self {
            workload: None,
            placements: part.placements,
            styles: part.styles,
            sources: part.sources,
            tracepoints: part.tracepoints,
            kernel: None,
            ..self.clone()
        })
    }

    /// Returns the session with instruments that are hit by one process only: each that is placed becomes a source of
    /// the session, whose predicates begin with `pid == …`.
    ///
    /// # Errors
    /// [`Error::Session`] if there is no such instrument, if its source is faulty, or if it is a function of an object
    /// file, which has no predicate.
    pub fn within_process(mut self, pid: u32, library: &Library) -> Result<Self> {
        let wrong = |name: &str, reason: &str| Error::Session {
            reason: format!("the instrument {name} of its kernel's part {reason}"),
        };
        let mut sources = BTreeMap::new();
        for placement in &self.placements {
            let name = &*placement.instrument;
            if sources.contains_key(name) {
                continue;
            }
            let source = match self.sources.get(name) {
                Some(text) => Source::parse(text)
                    .map_err(|faults| wrong(name, &format!("cannot be read: {faults}")))?,
                None => {
                    let definition = library.get(name);
                    let definition = definition
                        .map_err(|error| wrong(name, &format!("is not known: {error}")))?;
                    let source = definition.source().ok_or_else(|| {
                        wrong(
                            name,
                            "is of an object file, which is called for all processes; place another one",
                        )
                    })?;
                    source.as_ref().clone()
                }
            };
            sources.insert(name.to_owned(), source.within_process(pid));
        }
        self.sources.extend(sources);
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HookType;

    fn placement(function: &str, instrument: &str) -> Placement {
        Placement {
            function: function.into(),
            block: 0,
            hook: HookType::Pre,
            instrument: instrument.into(),
            launch: 0.0,
            splash: 10.0,
        }
    }

    fn both() -> Session {
        Session {
            placements: vec![placement("libc.so.6:write", "timestamp")],
            tracepoints: true,
            kernel: Some(KernelPart {
                placements: vec![
                    placement("vfs_write", "elapsed"),
                    placement("ksys_write", "sizes"),
                ],
                styles: BTreeMap::from([("vfs_write".to_owned(), Style::Whole)]),
                sources: BTreeMap::from([(
                    "sizes".to_owned(),
                    "instrument sizes \"Sizes.\";\nhit / arg2 > 1 / { sample(arg2) }".to_owned(),
                )]),
                tracepoints: false,
            }),
            ..Session::empty()
        }
    }

    #[test]
    fn a_session_of_two_targets_is_saved_and_read_back() {
        let session = both();
        let text = session.to_ron().unwrap();
        assert_eq!(Session::from_ron(&text).unwrap(), session);
        let alone = Session {
            kernel: None,
            ..session.clone()
        };
        let text = alone.to_ron().unwrap();
        assert!(
            !text.contains("kernel:"),
            "as older programs wrote it: {text}"
        );

        let kernel = session.of_kernel().unwrap();
        assert_eq!(
            (kernel.placements.len(), kernel.kernel.is_none()),
            (2, true)
        );
        assert_eq!(kernel.style("vfs_write"), Style::Whole);
        assert!(!kernel.tracepoints && alone.of_kernel().is_none());
        assert_eq!(Some(KernelPart::of(kernel)), session.kernel);
    }

    #[test]
    fn faults_of_the_kernels_part_are_named() {
        let mut session = both();
        if let Some(last) = session.kernel.as_mut().unwrap().placements.last_mut() {
            last.splash = 11.0;
        }
        let error = session.check().unwrap_err().to_string();
        assert!(
            error.contains("kernel's placement 1 (sizes at ksys_write block 0)"),
            "{error}"
        );
        let text = both().to_ron().unwrap();
        let error = Session::from_ron(&text.replace("sources", "origins")).unwrap_err();
        assert!(error.to_string().contains("origins"), "{error}");
    }

    #[test]
    fn instruments_are_hit_by_one_process_only() {
        let library = Library::builtin().unwrap();
        let kernel = both().of_kernel().unwrap();
        let within = kernel.clone().within_process(123, &library).unwrap();
        let parsed = |name: &str| Source::parse(&within.sources[name]).unwrap();
        assert_eq!(
            parsed("sizes").formatted(),
            "instrument sizes \"Sizes.\";\nhit / pid == 123 && (arg2 > 1) / { sample(arg2) }\n"
        );
        let elapsed = parsed("elapsed").formatted();
        let probes = [
            "entry / pid == 123 / {",
            "return / pid == 123 && (@start != 0) / {",
        ];
        for probe in probes {
            assert!(elapsed.contains(probe), "{elapsed}");
        }
        assert_eq!(within.placements, kernel.placements);

        let unknown = Session {
            placements: vec![placement("vfs_write", "nothing")],
            ..Session::empty()
        };
        let error = unknown.within_process(1, &library).unwrap_err().to_string();
        assert!(
            error.contains("nothing") && error.contains("counter"),
            "{error}"
        );
    }
}
