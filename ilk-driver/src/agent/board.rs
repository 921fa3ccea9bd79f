//! The state of an agent for clients that only look: the client that it serves, and the splices.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use gilk_engine::{Addr, Image};

use super::kernel;
use super::sys::Peer;
use crate::protocol::{Holder, MAX_ITEMS, SplicedFunction, Status, Target};

/// The state of the agent, as far as it is shown.
#[derive(Default)]
pub(super) struct Board(Mutex<BoardState>);

#[derive(Default)]
struct BoardState {
    holder: Option<(Option<Peer>, Instant)>,
    /// The machine, as it was described to the last client that was served.
    target: Option<Target>,
    view: Option<Arc<View>>,
}

/// The splices of a session.
pub(super) struct View(Mutex<ViewState>);

struct ViewState {
    image: Arc<Image>,
    /// Addresses of the splices and bounces in place.
    places: Vec<u64>,
    /// No splice is in place until the transition of a live patch is complete.
    is_out: bool,
}

impl View {
    pub(super) fn new(image: Arc<Image>) -> Self {
        Self(Mutex::new(ViewState {
            image,
            places: Vec::new(),
            is_out: false,
        }))
    }

    /// Replaces the addresses of the splices and bounces in place.
    pub(super) fn set(&self, places: Vec<u64>) {
        self.lock().places = places;
    }

    /// Shows that a live patch has removed every splice.
    pub(super) fn set_out(&self) {
        let mut state = self.lock();
        state.places.clear();
        state.is_out = true;
    }

    /// Shows that the session is in place again, on the kernel as it is after the live patch.
    pub(super) fn set_back(&self, image: Arc<Image>) {
        let mut state = self.lock();
        state.image = image;
        state.is_out = false;
    }

    fn image(&self) -> Arc<Image> {
        Arc::clone(&self.lock().image)
    }

    fn is_out(&self) -> bool {
        self.lock().is_out
    }

    /// Returns the number of splices in place of each function, by name.
    fn functions(&self) -> BTreeMap<String, u32> {
        let mut functions = BTreeMap::new();
        let state = self.lock();
        for &at in &state.places {
            // A bounce may be in the padding after a function.
            let function = state.image.function_at(Addr(at));
            let symbol = || {
                let symbol = state.image.symbol_at(Addr(at));
                symbol.map(|(name, _)| name.to_owned())
            };
            let name = function.map(|function| function.name.to_string());
            let name = name.or_else(symbol).unwrap_or_else(|| String::from("?"));
            *functions.entry(name).or_insert(0) += 1;
        }
        functions
    }

    fn lock(&self) -> MutexGuard<'_, ViewState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Board {
    /// Shows that a client is connected; `peer` is unknown at a port.
    pub(super) fn hold(&self, peer: Option<Peer>) {
        self.lock().holder = Some((peer, Instant::now()));
    }

    /// Shows that no client is connected.
    pub(super) fn release(&self) {
        self.lock().holder = None;
    }

    /// Shows the machine to clients that look.
    pub(super) fn describe(&self, target: &Target) {
        self.lock().target = Some(target.clone());
    }

    /// Returns the description of the machine, if a client has been served.
    pub(super) fn target(&self) -> Option<Target> {
        self.lock().target.clone()
    }

    /// Returns the kernel as it was before the splices of the session, if there is one.
    pub(super) fn image(&self) -> Option<Arc<Image>> {
        let view = self.lock().view.clone();
        view.map(|view| view.image())
    }

    /// Shows the splices of a session, or that there is none.
    pub(super) fn show(&self, view: Option<Arc<View>>) {
        self.lock().view = view;
    }

    /// Returns what is shown; `parked` are the seconds that a session without client still has.
    pub(super) fn status(&self, parked: Option<u64>) -> Status {
        let state = self.lock();
        let holder = state.holder.map(|(peer, since)| Holder {
            user: peer.map(|peer| peer.user),
            process: peer.map(|peer| peer.process),
            seconds: since.elapsed().as_secs(),
        });
        let view = state.view.clone();
        drop(state);
        let is_out = view.as_ref().is_some_and(|view| view.is_out());
        let functions = view.map(|view| view.functions()).unwrap_or_default();
        let splices = functions.values().sum();
        let functions = functions.into_iter().take(MAX_ITEMS);
        Status {
            host: kernel::host(),
            release: kernel::release(),
            holder,
            parked,
            is_out,
            splices,
            functions: functions
                .map(|(name, splices)| SplicedFunction { name, splices })
                .collect(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BoardState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holder_and_splices_are_shown_by_function() {
        let saved = include_bytes!("../../../engine/tests/data/fork.image");
        let image = Image::from_live(&postcard::from_bytes(saved).unwrap()).unwrap();
        let start = |name: &str| image.function_named(name).unwrap().span.start.0;
        let places = vec![
            start("kernel_clone"),
            start("kernel_clone") + 5,
            start("copy_process"),
        ];
        let board = Board::default();
        assert_eq!(board.status(None).holder, None);
        let peer = Peer {
            user: 1000,
            process: 77,
        };
        board.hold(Some(peer));
        let view = Arc::new(View::new(Arc::new(image)));
        view.set(places);
        board.show(Some(Arc::clone(&view)));
        let status = board.status(Some(12));
        let holder = status.holder.unwrap();
        assert_eq!((holder.user, holder.process), (Some(1000), Some(77)));
        assert_eq!((status.parked, status.splices), (Some(12), 3));
        let functions: Vec<(&str, u32)> = status
            .functions
            .iter()
            .map(|function| (function.name.as_str(), function.splices))
            .collect();
        assert_eq!(functions, [("copy_process", 1), ("kernel_clone", 2)]);
        view.set_out();
        let out = board.status(None);
        assert!(out.is_out && out.splices == 0);
        view.set_back(board.image().unwrap());
        board.release();
        let status = board.status(None);
        assert_eq!((status.holder, status.splices), (None, 0));
        assert!(!status.is_out);
    }
}
