//! Source lines of the objects of a process, by their debug information.

use std::path::Path;

use gilk_engine::{Addr, Span};

use super::objects::{file_of, slide};
use super::proc;
use super::subject::Subject;
use crate::Result;
use crate::sources::{SourceLine, Sources, Watch};

/// The debug information of the objects of a process that have some.
#[derive(Debug)]
pub struct ObjectLines(Vec<(Span, Sources)>);

impl ObjectLines {
    /// Reads the debug information of the objects of a subject, in their files or in separate ones; `None` if none has
    /// any, or `watch` ended the search.
    ///
    /// # Errors
    /// [`Error::Sources`](crate::Error::Sources) if that of an object is of another build, or damaged;
    /// [`Error::Process`](crate::Error::Process) if a file cannot be read any more.
    pub fn read(subject: &Subject, watch: &Watch<'_>) -> Result<Option<Self>> {
        let pid = subject.pid;
        let root = proc(pid, "root");
        let mut all = Vec::new();
        for object in &subject.objects {
            let file = file_of(pid, object)?;
            let path = &object.path;
            let slide = slide(pid, &file, object)?;
            let sources = Sources::of_object((Path::new(path), &file), &root, slide, watch)?;
            all.extend(sources.map(|sources| (object.span, sources)));
        }
        Ok((!all.is_empty()).then_some(Self(all)))
    }

    /// Returns the source line of the instruction at an address, if known.
    #[must_use]
    pub fn line(&self, at: Addr) -> Option<SourceLine> {
        let mut objects = self.0.iter();
        let (_, sources) = objects.find(|(span, _)| span.contains(at))?;
        sources.line(at)
    }
}
