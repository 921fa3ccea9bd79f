//! Places in the kernel to go back to.

use gilk_engine::cfg::BlockIndex;
use gilk_engine::image::FunctionId;

/// A place in the kernel that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The function.
    pub function: FunctionId,
    /// The chosen block.
    pub block: Option<BlockIndex>,
}

/// Places to go back to, and forward again.
#[derive(Clone, Debug, Default)]
pub struct History {
    back: Vec<Place>,
    forward: Vec<Place>,
}

impl History {
    const DEEPEST: usize = 200;

    /// Notes that `place` is left for a new one.
    pub fn leave(&mut self, place: Place) {
        if self.back.last() != Some(&place) {
            self.back.push(place);
        }
        if self.back.len() > Self::DEEPEST {
            self.back.remove(0);
        }
        self.forward.clear();
    }

    /// Where to go back to from `here`.
    pub fn back(&mut self, here: Option<Place>) -> Option<Place> {
        let place = self.back.pop()?;
        self.forward.extend(here);
        Some(place)
    }

    /// Where to go forward to from `here`.
    pub fn forward(&mut self, here: Option<Place>) -> Option<Place> {
        let place = self.forward.pop()?;
        self.back.extend(here);
        Some(place)
    }

    /// Whether there is a way back, and a way forward.
    #[must_use]
    pub fn ways(&self) -> (bool, bool) {
        (!self.back.is_empty(), !self.forward.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_goes_back_and_forward() {
        let place = |id| Place {
            function: FunctionId(id),
            block: None,
        };
        let mut history = History::default();
        history.leave(place(1));
        history.leave(place(2));
        assert_eq!(history.back(Some(place(3))), Some(place(2)));
        assert_eq!(history.back(Some(place(2))), Some(place(1)));
        assert_eq!(history.forward(Some(place(1))), Some(place(2)));
        assert_eq!(history.ways(), (true, true));
        history.leave(place(9));
        assert_eq!(history.ways(), (true, false));
    }
}
