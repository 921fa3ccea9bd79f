//! Navigation history.

use gilk_engine::cfg::BlockIndex;
use gilk_engine::code::FunctionId;

/// A location in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// The open function.
    pub function: FunctionId,
    /// The selected block.
    pub block: Option<BlockIndex>,
}

/// The back and forward stacks.
#[derive(Clone, Debug, Default)]
pub struct History {
    back: Vec<Location>,
    forward: Vec<Location>,
}

impl History {
    const MAX_DEPTH: usize = 200;

    /// Pushes `location` on the back stack, before another location opens.
    pub fn leave(&mut self, location: Location) {
        if self.back.last() != Some(&location) {
            self.back.push(location);
        }
        if self.back.len() > Self::MAX_DEPTH {
            self.back.remove(0);
        }
        self.forward.clear();
    }

    /// Pops the previous location; `here` moves to the forward stack.
    pub fn back(&mut self, here: Option<Location>) -> Option<Location> {
        let location = self.back.pop()?;
        self.forward.extend(here);
        Some(location)
    }

    /// Pops the next location; `here` moves to the back stack.
    pub fn forward(&mut self, here: Option<Location>) -> Option<Location> {
        let location = self.forward.pop()?;
        self.back.extend(here);
        Some(location)
    }

    /// Returns whether the back and forward stacks have a location.
    #[must_use]
    pub fn available(&self) -> (bool, bool) {
        (!self.back.is_empty(), !self.forward.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_goes_back_and_forward() {
        let location = |id| Location {
            function: FunctionId(id),
            block: None,
        };
        let mut history = History::default();
        history.leave(location(1));
        history.leave(location(2));
        assert_eq!(history.back(Some(location(3))), Some(location(2)));
        assert_eq!(history.back(Some(location(2))), Some(location(1)));
        assert_eq!(history.forward(Some(location(1))), Some(location(2)));
        assert_eq!(history.available(), (true, true));
        history.leave(location(9));
        assert_eq!(history.available(), (true, false));
    }
}
