//! The peer that buffers are pushed to: memory where chunks land one after the other, over and over.

use crate::bench::error::{Result, RowError};
use crate::bench::stop::Stop;
use crate::bench::storage::side::Side;
use mkey::{Device, Mr, Pd, Region, RemoteKey, Slice, Work};

/// Bytes where chunks land: a buffer may be larger than the peer's memory.
const LANDING: u64 = 64 << 20;
/// The most chunks posted at a time.
const DEPTH: usize = 16;

/// Two ends, and the peer's memory.
#[derive(Debug)]
pub struct Link {
    /// The end that pushes.
    pub side: Side,
    _peer: Side,
    landing: Slice,
    chunk: usize,
    places: Vec<RemoteKey>,
}

/// Bytes that the peer registers for a chunk size.
pub fn landing(chunk: u64) -> u64 {
    (LANDING / chunk.max(1)).max(1).saturating_mul(chunk)
}

impl Link {
    /// Connects the two ends, and has the peer open its memory.
    ///
    /// # Errors
    /// As the memory or the device refuses.
    pub fn connect(device: &Device, chunk: u64) -> Result<Self> {
        let side = Side::new(device, &Pd::new(device)?, DEPTH)?;
        let peer = Side::new(device, &Pd::new(device)?, DEPTH)?;
        side.connect(&peer)?;
        let bytes = usize::try_from(landing(chunk)).unwrap_or(usize::MAX);
        let region = Region::builder(bytes).map_prefaulted(1)?;
        let landing =
            Mr::builder(&peer.pd).remote_write().register(region)?.whole().part(..bytes)?;
        let key = landing.remote_key()?;
        let place = |n: u64| Ok(key.part(n.saturating_mul(chunk), chunk)?);
        let places = (0..landing.len() as u64 / chunk.max(1)).map(place);
        let places = places.collect::<Result<Vec<_>>>()?;
        let chunk = usize::try_from(chunk).unwrap_or(usize::MAX);
        Ok(Self { side, _peer: peer, landing, chunk, places })
    }

    /// Bytes of a chunk.
    pub fn chunk(&self) -> usize {
        self.chunk
    }

    /// Pushes a buffer, chunk by chunk.
    ///
    /// # Errors
    /// As the device refuses; `Stopped`.
    pub fn push(&mut self, buffer: &Slice, stop: &Stop) -> Result<()> {
        let starts = (0..buffer.len()).step_by(self.chunk.max(1));
        let end = |start: usize| start.saturating_add(self.chunk).min(buffer.len());
        let chunks = starts.map(|start| Ok([buffer.part(start..end(start))?]));
        let chunks = chunks.collect::<Result<Vec<_>>>()?;
        let mut places = self.places.iter().cycle();
        for batch in chunks.chunks(DEPTH) {
            stop.check()?;
            let mut chain: Vec<Work<'_>> = Vec::with_capacity(batch.len());
            for (chunk, place) in batch.iter().zip(places.by_ref()) {
                let write = Work::write(chunk, *place);
                let last = chain.len() + 1 == batch.len();
                chain.push(if last { write } else { write.unsignaled() });
            }
            self.side.post_and_wait(&chain)?;
        }
        Ok(())
    }

    /// Whether the chunks that came last are there: each begins with a word that names it.
    ///
    /// # Errors
    /// `NotArrived`, with the chunk's place in the buffer.
    pub fn check(&self, bytes: usize, word: impl Fn(usize) -> u64) -> Result<()> {
        let chunks = bytes.div_ceil(self.chunk.max(1));
        for number in chunks.saturating_sub(self.places.len())..chunks {
            let place = number.checked_rem(self.places.len()).unwrap_or(0);
            let offset = (number as u64).saturating_mul(self.chunk as u64);
            if self.landing.load(place.saturating_mul(self.chunk))? != word(number) {
                return Err(RowError::NotArrived { offset });
            }
        }
        Ok(())
    }
}
