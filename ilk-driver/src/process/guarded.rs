//! Objects whose system calls have guards while memory of the process is read: their code is read once, and again where it
//! has changed, since that of a C library takes a second.

use std::fs::File;
use std::sync::Arc;

use gilk_engine::filters::{FilterCall, filter_calls, may_filter};
use gilk_engine::{Addr, Image, Span};

use super::objects::{Object, file_of, objects};
use super::record::{Written, own_text};
use super::refused;
use super::subject::{groups, image_of_code, live_code};
use crate::Result;

/// The searches of a process for system calls that may install a filter.
#[derive(Debug, Default)]
pub(super) struct GuardSearch {
    /// Those objects that may have some.
    objects: Vec<SearchedObject>,
    /// The last result, which is of these.
    last: Option<Arc<GuardedCode>>,
}

/// An object as it was searched.
#[derive(Debug)]
struct SearchedObject {
    object: Object,
    /// Its code, without splices.
    code: Vec<(Addr, Vec<u8>)>,
    image: Image,
}

/// All objects of a process with system calls that may install a filter.
#[derive(Debug)]
pub(super) struct GuardedCode {
    pub(super) image: Image,
    pub(super) calls: Vec<FilterCall>,
    /// Those that share an arena: from the first to the last address.
    pub(super) groups: Vec<Span>,
}

impl GuardSearch {
    /// Searches the objects that a process has mapped now, of which it returns all, too.
    ///
    /// # Errors
    /// [`crate::Error::Process`] if one cannot be read, or none has a system call; [`crate::Error::Engine`] with the rule if a
    /// system call cannot be guarded.
    pub(super) fn search(
        &mut self,
        pid: u32,
        memory: &File,
    ) -> Result<(Arc<GuardedCode>, Vec<Object>)> {
        let all = objects(pid)?;
        // Where children wait, the number of a system call is displaced, which is none that filters.
        let own = own_text(pid, memory)?;
        let mut known = std::mem::take(&mut self.objects);
        let before = known.len();
        let mut is_same = true;
        for object in &all {
            let code = live_code(pid, memory, object)?;
            if !code.iter().any(|(_, bytes)| may_filter(bytes)) {
                continue;
            }
            let code = without(code, &own);
            let is_it = |one: &SearchedObject| one.object == *object && one.code == code;
            let searched = match known.iter().position(is_it) {
                Some(index) => known.swap_remove(index),
                None => {
                    is_same = false;
                    let file = file_of(pid, object)?;
                    SearchedObject {
                        object: object.clone(),
                        image: image_of_code(pid, object, &file, code.clone())?,
                        code,
                    }
                }
            };
            self.objects.push(searched);
        }
        let last = self.last.take();
        let last = last.filter(|_| is_same && self.objects.len() == before);
        let found = match last {
            Some(last) => last,
            None => Arc::new(self.guarded(pid)?),
        };
        self.last = Some(Arc::clone(&found));
        Ok((found, all))
    }

    /// The system calls of all objects.
    fn guarded(&self, pid: u32) -> Result<GuardedCode> {
        let mut images = self.objects.iter().map(|one| &one.image);
        let first = images.next();
        let first = first.ok_or_else(|| refused(pid, "none of its objects has a system call"))?;
        let mut image = first.clone();
        for further in images {
            image.join(further.clone())?;
        }
        let groups = groups(self.objects.iter().map(|one| &one.object));
        Ok(GuardedCode {
            calls: filter_calls(&image)?,
            groups: groups.into_iter().map(|(span, _)| span).collect(),
            image,
        })
    }
}

/// Returns code with the original bytes of splices.
fn without(mut code: Vec<(Addr, Vec<u8>)>, splices: &[Written]) -> Vec<(Addr, Vec<u8>)> {
    for (start, bytes) in &mut code {
        for Written { at, original, .. } in splices {
            let offset = at.0.checked_sub(start.0);
            let offset = offset.and_then(|offset| usize::try_from(offset).ok());
            let place =
                offset.and_then(|offset| bytes.get_mut(offset..)?.get_mut(..original.len()));
            // It is in another part.
            if let Some(place) = place {
                place.copy_from_slice(original);
            }
        }
    }
    code
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::process::removal::memory;

    #[test]
    fn code_that_has_not_changed_is_searched_once() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        // It has mapped its C library when it waits.
        let waits = || std::fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap();
        while !waits().contains("nanosleep") {
            std::thread::yield_now();
        }
        let memory = memory(pid).unwrap();
        let mut search = GuardSearch::default();
        let (first, all) = search.search(pid, &memory).unwrap();
        assert!(!first.calls.is_empty() && all.len() >= 3, "{all:?}");
        let (second, _) = search.search(pid, &memory).unwrap();
        assert!(Arc::ptr_eq(&first, &second));
        // Other code, and an object that is not mapped any more, have the search made again.
        for code in &mut search.objects.first_mut().unwrap().code {
            code.1.fill(0);
        }
        let (third, _) = search.search(pid, &memory).unwrap();
        assert!(!Arc::ptr_eq(&second, &third));
        assert_eq!(third.calls, first.calls);
        let further = search.objects.first().unwrap();
        search.objects.push(SearchedObject {
            object: further.object.clone(),
            code: Vec::new(),
            image: further.image.clone(),
        });
        let (fourth, _) = search.search(pid, &memory).unwrap();
        assert!(!Arc::ptr_eq(&third, &fourth));
        assert_eq!(fourth.calls, first.calls);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
