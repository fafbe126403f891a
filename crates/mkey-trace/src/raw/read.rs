//! Reading a file: whatever its bytes are, what is given lies within them.

use super::{
    ALIGN, Call, Device, Failure, Finding, HEADER, Head, Header, MAGIC, Maps, Module, Mr, Queue,
    Remote, Slot, Stack, Thread, Window, kind,
};
use bytemuck::Pod;

/// The bytes of one file.
#[derive(Clone, Copy, Debug)]
pub struct File<'a> {
    bytes: &'a [u8],
}

/// Why bytes are not those of a traced process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRaw {
    /// Too few for a header: so many.
    #[error("{0} bytes are fewer than its header has")]
    Short(usize),
    /// They begin otherwise than with [`MAGIC`]: it was never begun, or is of another release.
    #[error("it does not begin as the file of a traced process does")]
    Magic,
}

/// A record, and what comes after its fixed part.
#[derive(Clone, Copy, Debug)]
pub enum Record<'a> {
    Call(Call),
    Mr(Mr),
    /// With the bytes that were at `sp`.
    Stack(Stack, &'a [u8]),
    /// With its name.
    Module(Module, &'a [u8]),
    Thread(Thread),
    Queue(Queue),
    Remote(Remote),
    /// With its name.
    Device(Device, &'a [u8]),
    Finding(Finding),
    Window(Window),
    Failure(Failure),
    /// With the text.
    Maps(Maps, &'a [u8]),
}

/// The fixed part of a record.
pub trait Kind: Pod {
    /// Its [`kind`].
    const KIND: u16;
}

impl<'a> File<'a> {
    /// The file of these bytes.
    ///
    /// # Errors
    /// [`NotRaw`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, NotRaw> {
        let header = bytes.get(..HEADER).ok_or(NotRaw::Short(bytes.len()))?;
        if !header.starts_with(&MAGIC) {
            return Err(NotRaw::Magic);
        }
        // What was taken ends where the process says, if the file is as long.
        let used = bytemuck::pod_read_unaligned::<Header>(header).used;
        let used = usize::try_from(used).unwrap_or(usize::MAX).max(HEADER);
        Ok(Self { bytes: bytes.get(..used).unwrap_or(bytes) })
    }

    /// Its first page.
    pub fn header(&self) -> Header {
        // `parse` has seen that so many bytes are there.
        self.bytes
            .get(..HEADER)
            .map_or_else(bytemuck::Zeroable::zeroed, bytemuck::pod_read_unaligned)
    }

    /// All records that are whole, in the order in which their room was taken.
    pub fn records(&self) -> Records<'a> {
        Records { bytes: self.bytes, at: HEADER }
    }

    /// The record of a name, whatever its kind.
    pub fn record(&self, slot: Slot) -> Option<Record<'a>> {
        record(self.bytes, offset(slot)?)
    }

    /// The fixed part of the record of a name, if it is of this kind: `file.get::<Call>(mr.reg)`.
    pub fn get<T: Kind>(&self, slot: Slot) -> Option<T> {
        let (head, whole) = whole(self.bytes, offset(slot)?)?;
        if head.kind != T::KIND {
            return None;
        }
        whole.get(..size_of::<T>()).map(bytemuck::pod_read_unaligned)
    }
}

/// The iterator of [`File::records`].
#[derive(Clone, Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Records<'a> {
    type Item = (Slot, Record<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        while self.at < self.bytes.len() {
            let at = self.at;
            let read = record(self.bytes, at);
            // One that was not written to its end has its length, if not its kind.
            self.at += whole(self.bytes, at).map_or(ALIGN, |(_, whole)| whole.len());
            if let Some(read) = read {
                return Some((Slot::try_from(at / ALIGN).ok()?, read));
            }
        }
        None
    }
}

fn offset(slot: Slot) -> Option<usize> {
    (slot as usize).checked_mul(ALIGN).filter(|at| *at >= HEADER)
}

/// The head and all bytes of what begins at `at`, if its length can be one.
fn whole(bytes: &[u8], at: usize) -> Option<(Head, &[u8])> {
    let bytes = bytes.get(at..)?;
    let head: Head = bytemuck::pod_read_unaligned(bytes.get(..size_of::<Head>())?);
    let len = usize::try_from(head.len).ok().filter(|len| *len > 0 && len % ALIGN == 0)?;
    Some((head, bytes.get(..len)?))
}

fn record(bytes: &[u8], at: usize) -> Option<Record<'_>> {
    let (head, whole) = whole(bytes, at)?;
    fn split<T: Kind>(whole: &[u8]) -> Option<(T, &[u8])> {
        let (fixed, tail) = whole.split_at_checked(size_of::<T>())?;
        Some((bytemuck::pod_read_unaligned(fixed), tail))
    }
    fn fixed<T: Kind>(whole: &[u8]) -> Option<T> {
        split(whole).map(|(fixed, _)| fixed)
    }
    fn cut(tail: &[u8], len: u64) -> Option<&[u8]> {
        tail.get(..usize::try_from(len).ok()?)
    }
    Some(match head.kind {
        kind::CALL => Record::Call(fixed(whole)?),
        kind::MR => Record::Mr(fixed(whole)?),
        kind::STACK => {
            let (stack, tail) = split::<Stack>(whole)?;
            Record::Stack(stack, cut(tail, stack.bytes.into())?)
        }
        kind::MODULE => {
            let (module, tail) = split::<Module>(whole)?;
            Record::Module(module, cut(tail, module.name.into())?)
        }
        kind::THREAD => Record::Thread(fixed(whole)?),
        kind::QUEUE => Record::Queue(fixed(whole)?),
        kind::REMOTE => Record::Remote(fixed(whole)?),
        kind::DEVICE => {
            let (device, tail) = split::<Device>(whole)?;
            Record::Device(device, cut(tail, device.name.into())?)
        }
        kind::FINDING => Record::Finding(fixed(whole)?),
        kind::WINDOW => Record::Window(fixed(whole)?),
        kind::FAILURE => Record::Failure(fixed(whole)?),
        kind::MAPS => {
            let (maps, tail) = split::<Maps>(whole)?;
            Record::Maps(maps, cut(tail, maps.bytes)?)
        }
        _ => return None,
    })
}

macro_rules! kinds {
    ($($fixed:ty = $kind:ident),*) => {
        $(impl Kind for $fixed { const KIND: u16 = kind::$kind; })*
    };
}

kinds!(
    Call = CALL,
    Mr = MR,
    Stack = STACK,
    Module = MODULE,
    Thread = THREAD,
    Queue = QUEUE,
    Remote = REMOTE,
    Device = DEVICE,
    Finding = FINDING,
    Window = WINDOW,
    Failure = FAILURE,
    Maps = MAPS
);
