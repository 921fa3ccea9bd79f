//! Memory as serde sees it: each span's bytes as one unit. As a list of bytes, 25 MB would be read and written byte by
//! byte. Formats that do not describe themselves, as postcard's, are the same for both.

use serde::{Deserialize, Deserializer, Serializer};
use serde_bytes::{ByteBuf, Bytes};

use crate::Addr;

#[allow(clippy::ptr_arg, reason = "serde passes the field by reference")]
pub(super) fn serialize<S: Serializer>(
    memory: &Vec<(Addr, Vec<u8>)>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(memory.iter().map(|(at, bytes)| (at, Bytes::new(bytes))))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<(Addr, Vec<u8>)>, D::Error> {
    let memory = Vec::<(Addr, ByteBuf)>::deserialize(deserializer)?;
    let memory = memory.into_iter();
    Ok(memory.map(|(at, bytes)| (at, bytes.into_vec())).collect())
}
