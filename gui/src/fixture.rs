//! Values that unit tests start from.

use gilk_samples::Meaning;
use gilk_samples::metadata::{Delivers, InstrumentInfo};

/// An instrument that samples values during the first second.
pub(crate) fn instrument() -> InstrumentInfo {
    InstrumentInfo {
        id: 1,
        label: "a".into(),
        instrument: "a".into(),
        meaning: Meaning::Value,
        unit: String::new(),
        launch: 0.0,
        splash: 1.0,
        placed: None,
        delivers: Delivers::Samples,
    }
}
