//! Encoding of samples as record batches, compressed according to load.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, RecordBatch, UInt8Array, UInt16Array, UInt64Array};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{
    DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions, write_message,
};
use arrow_schema::SchemaRef;

use crate::Sample;
use crate::recording::rows::Row;

/// Compression of batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// zstd level 1, but none while samples arrive faster than that can compress.
    #[default]
    Auto,
    /// zstd level 1, always.
    Zstd,
    /// No compression.
    None,
}

/// Encoder of rows as messages. Messages may be compressed or not: readers accept a mix.
#[derive(Default)]
pub(super) struct Encoder {
    pub(super) compression: Compression,
    pub(super) load: Load,
    context: IpcWriteContext,
    spare: Vec<u8>,
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encoder")
            .field("compression", &self.compression)
            .field("load", &self.load)
            .finish()
    }
}

/// A message: prefix, metadata, body.
pub(super) struct Encoded {
    pub(super) bytes: Vec<u8>,
    /// Length of prefix and metadata.
    pub(super) meta: usize,
}

impl Encoder {
    /// Encodes a batch of samples of one CPU.
    pub(super) fn samples(
        &mut self,
        schema: &SchemaRef,
        cpu: u16,
        samples: &[Sample],
    ) -> Result<Encoded, String> {
        let column = |of: fn(&Sample) -> u64| -> ArrayRef {
            Arc::new(UInt64Array::from(
                samples.iter().map(of).collect::<Vec<u64>>(),
            ))
        };
        let columns: Vec<ArrayRef> = vec![
            column(|sample| sample.tsc),
            Arc::new(UInt16Array::from_value(cpu, samples.len())),
            Arc::new(UInt8Array::from_value(0, samples.len())),
            column(|sample| sample.id),
            column(|sample| sample.value),
        ];
        self.encode(schema, columns, samples.len())
    }

    /// Encodes a batch of losses and marks of one CPU.
    pub(super) fn notes(&mut self, schema: &SchemaRef, rows: &[Row]) -> Result<Encoded, String> {
        let column = |of: fn(&Row) -> u64| -> ArrayRef {
            Arc::new(UInt64Array::from_iter_values(rows.iter().map(of)))
        };
        let columns: Vec<ArrayRef> = vec![
            column(|row| row.time),
            Arc::new(UInt16Array::from_iter_values(
                rows.iter().map(|row| row.cpu),
            )),
            Arc::new(UInt8Array::from_iter_values(
                rows.iter().map(|row| row.kind),
            )),
            column(|row| row.id),
            column(|row| row.value),
        ];
        self.encode(schema, columns, rows.len())
    }

    /// Takes back the memory of a written message, for the next one.
    pub(super) fn take_back(&mut self, encoded: Encoded) {
        self.spare = encoded.bytes;
    }

    fn encode(
        &mut self,
        schema: &SchemaRef,
        columns: Vec<ArrayRef>,
        rows: usize,
    ) -> Result<Encoded, String> {
        let compress = match self.compression {
            Compression::Auto => self.load.affords_zstd(),
            Compression::Zstd => true,
            Compression::None => false,
        };
        let codec = compress.then_some(CompressionType::ZSTD);
        let begin = Instant::now();
        let encode = || {
            let options = IpcWriteOptions::default().try_with_compression(codec)?;
            let batch = RecordBatch::try_new(Arc::clone(schema), columns)?;
            // No column is a dictionary, so there is nothing to track.
            let mut tracker = DictionaryTracker::new(true);
            let (_, message) = IpcDataGenerator::default().encode(
                &batch,
                &mut tracker,
                &options,
                &mut self.context,
            )?;
            let mut bytes = std::mem::take(&mut self.spare);
            bytes.clear();
            let (meta, _) = write_message(&mut bytes, message, &options)?;
            Ok(Encoded { bytes, meta })
        };
        let encoded = encode().map_err(|error: arrow_schema::ArrowError| error.to_string());
        if compress {
            self.load.took(rows, begin.elapsed());
        }
        encoded
    }
}

/// Rate of samples, and measured cost of compressing one.
#[derive(Debug)]
pub(super) struct Load {
    since: Instant,
    samples: usize,
    /// Samples per second in the last whole window.
    rate: f64,
    /// Seconds to compress a sample.
    cost: f64,
    compressing: bool,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            since: Instant::now(),
            samples: 0,
            rate: 0.0,
            cost: 75e-9,
            compressing: true,
        }
    }
}

impl Load {
    /// Length of the window in which the rate is measured.
    const WINDOW: Duration = Duration::from_millis(250);
    /// Share of the writer's time above which compression stops, and below which it resumes.
    const TOO_BUSY: f64 = 0.6;
    const IDLE: f64 = 0.4;

    /// Records the arrival of samples.
    pub(super) fn count(&mut self, samples: usize) {
        self.samples += samples;
        let elapsed = self.since.elapsed();
        if elapsed >= Self::WINDOW {
            self.rate = self.samples as f64 / elapsed.as_secs_f64();
            self.since = Instant::now();
            self.samples = 0;
        }
    }

    /// Returns whether a batch should be compressed now.
    fn affords_zstd(&mut self) -> bool {
        let share = self.rate * self.cost;
        self.compressing = share
            < if self.compressing {
                Self::TOO_BUSY
            } else {
                Self::IDLE
            };
        self.compressing
    }

    /// Records the duration of compressing a batch. Small batches are ignored.
    fn took(&mut self, rows: usize, time: Duration) {
        if rows >= 1024 {
            let cost = time.as_secs_f64() / rows as f64;
            self.cost += (cost - self.cost) / 8.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn high_load_disables_compression_and_low_load_enables_it() {
        let mut load = Load {
            rate: 1e6,
            ..Load::default()
        };
        assert!(load.affords_zstd());
        load.rate = 20e6;
        assert!(!load.affords_zstd());
        // Hysteresis: in between, the state does not change.
        load.rate = 7e6;
        assert!(!load.affords_zstd());
        load.rate = 1e6;
        assert!(load.affords_zstd());
        load.rate = 7e6;
        assert!(load.affords_zstd());
        // A machine that compresses more slowly stops earlier.
        for _ in 0..100 {
            load.took(10_000, Duration::from_millis(2));
        }
        assert!(!load.affords_zstd());
    }
}
