pub(crate) mod parts;
pub(crate) mod player;
pub(crate) mod running;
pub(crate) mod splice;
