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

    /// As it is meant, of what is in the file.
    #[must_use]
    fn told(self) -> Self {
        self
    }
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
        whole.get(..size_of::<T>()).map(|fixed| bytemuck::pod_read_unaligned::<T>(fixed).told())
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
        Some((bytemuck::pod_read_unaligned::<T>(fixed).told(), tail))
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

impl Kind for Queue {
    const KIND: u16 = kind::QUEUE;

    fn told(mut self) -> Self {
        self.completed = self.completed.wrapping_add(self.received);
        self
    }
}

impl Kind for Mr {
    const KIND: u16 = kind::MR;

    fn told(mut self) -> Self {
        let own = std::mem::take(&mut self.own_uses);
        self.uses.iter_mut().zip(own).for_each(|(uses, own)| *uses = uses.wrapping_add(own));
        self.done = self.own_done.into_iter().fold(self.done, u64::wrapping_add);
        self.own_done = [0; 2];
        self
    }
}

impl Kind for Remote {
    const KIND: u16 = kind::REMOTE;

    fn told(mut self) -> Self {
        self.writes = self.writes.wrapping_add(std::mem::take(&mut self.own_writes));
        self.reads = self.reads.wrapping_add(std::mem::take(&mut self.own_reads));
        self.atomics = self.atomics.wrapping_add(std::mem::take(&mut self.own_atomics));
        self
    }
}

macro_rules! kinds {
    ($($fixed:ty = $kind:ident),*) => {
        $(impl Kind for $fixed { const KIND: u16 = kind::$kind; })*
    };
}

kinds!(
    Call = CALL,
    Stack = STACK,
    Module = MODULE,
    Thread = THREAD,
    Device = DEVICE,
    Finding = FINDING,
    Window = WINDOW,
    Failure = FAILURE,
    Maps = MAPS
);

#[cfg(test)]
mod tests {
    use super::*;
    use bytemuck::{Zeroable, bytes_of};
    use proptest::prelude::*;

    fn header(used: usize) -> Vec<u8> {
        bytes_of(&Header { magic: MAGIC, used: used as u64, ..Header::zeroed() }).to_vec()
    }

    fn record<T: Kind>(mut fixed: T, tail: &[u8]) -> Vec<u8> {
        let len = (size_of::<T>() + tail.len()).next_multiple_of(ALIGN);
        let head = Head { len: len as u32, kind: T::KIND, zero: 0 };
        bytemuck::bytes_of_mut(&mut fixed)[..size_of::<Head>()].copy_from_slice(bytes_of(&head));
        let mut bytes = [bytes_of(&fixed), tail].concat();
        bytes.resize(len, 0);
        bytes
    }

    /// A file with one of each kind, and gaps of zeros.
    fn whole() -> Vec<u8> {
        let mut bytes = header(0);
        bytes.extend(record(Call { lkey: 7, ..Call::zeroed() }, &[]));
        bytes.extend([0; 3 * ALIGN]);
        bytes.extend(record(
            Mr { uses: [1; 5], own_uses: [1; 4], own_done: [1, 2], ..Mr::zeroed() },
            &[],
        ));
        bytes.extend(record(Stack { bytes: 100, ..Stack::zeroed() }, &[1; 100]));
        bytes.extend(record(Module { name: 5, ..Module::zeroed() }, b"a.out"));
        bytes.extend(record(Thread::zeroed(), &[]));
        bytes.extend(record(Queue { completed: 2, received: 3, ..Queue::zeroed() }, &[]));
        bytes.extend(record(Remote { writes: 1, own_writes: 2, ..Remote::zeroed() }, &[]));
        bytes.extend(record(Device { name: 5, ..Device::zeroed() }, b"mlx5_"));
        bytes.extend(record(Finding::zeroed(), &[]));
        bytes.extend(record(Window::zeroed(), &[]));
        bytes.extend(record(Failure::zeroed(), &[]));
        bytes.extend(record(Maps { bytes: 8, ..Maps::zeroed() }, b"1-2 rw-p"));
        let used = bytes.len() as u64;
        let at = std::mem::offset_of!(Header, used);
        bytes[at..at + 8].copy_from_slice(&used.to_ne_bytes());
        bytes
    }

    /// All that a reader may ask of bytes.
    fn read(bytes: &[u8]) -> usize {
        let Ok(file) = File::parse(bytes) else { return 0 };
        let _ = file.header();
        let mut count = 0;
        let mut last = 0;
        for (slot, _) in file.records() {
            assert!(slot > last && file.record(slot).is_some());
            (count, last) = (count + 1, slot);
        }
        for slot in [0, 1, 63, 64, 65, last, last + 1, u32::MAX] {
            let _ = (file.record(slot), file.get::<Call>(slot), file.get::<Mr>(slot));
        }
        count
    }

    #[test]
    fn each_kind_is_read_and_counters_are_told_as_they_are_meant() {
        let bytes = whole();
        let file = File::parse(&bytes).unwrap();
        let all: Vec<_> = file.records().collect();
        assert_eq!(all.len(), 12);
        assert!(matches!(all[0], (64, Record::Call(Call { lkey: 7, .. }))));
        let (slot, Record::Mr(mr)) = all[1] else { panic!() };
        assert_eq!((slot, mr.uses, mr.done), (70, [2, 2, 2, 2, 1], 3));
        assert_eq!(file.get::<Mr>(slot).unwrap().uses, mr.uses);
        assert!(file.get::<Call>(slot).is_none() && file.get::<Call>(64).is_some());
        assert!(matches!(all[2].1, Record::Stack(_, bytes) if bytes == [1; 100]));
        assert!(matches!(all[3].1, Record::Module(_, b"a.out")));
        assert!(matches!(all[5].1, Record::Queue(Queue { completed: 5, received: 3, .. })));
        assert!(matches!(all[6].1, Record::Remote(Remote { writes: 3, .. })));
        assert!(matches!(all[7].1, Record::Device(_, b"mlx5_")));
        assert!(matches!(all[11].1, Record::Maps(_, b"1-2 rw-p")));
    }

    #[test]
    fn a_record_that_was_not_written_to_its_end_is_passed_over() {
        let mut bytes = whole();
        // The kind of the region's, and what lies within it looks like a record.
        let at = 70 * ALIGN;
        bytes[at + 4] = 0;
        bytes[at + ALIGN..at + ALIGN + 8].copy_from_slice(bytes_of(&Head {
            len: 64,
            kind: 5,
            zero: 0,
        }));
        let file = File::parse(&bytes).unwrap();
        assert_eq!(file.records().count(), 11);
        assert!(file.record(70).is_none());
    }

    #[test]
    fn what_is_no_such_file_is_told_why() {
        assert_eq!(File::parse(&[]).unwrap_err(), NotRaw::Short(0));
        assert_eq!(File::parse(&[0; HEADER]).unwrap_err(), NotRaw::Magic);
        assert_eq!(File::parse(&header(0)).unwrap().records().count(), 0);
    }

    #[test]
    fn a_file_that_is_cut_anywhere_has_the_records_before() {
        let bytes = whole();
        let all = read(&bytes);
        let mut before = 0;
        for len in HEADER..=bytes.len() {
            let now = read(&bytes[..len]);
            assert!(now == before || now == before + 1);
            before = now;
        }
        assert_eq!(before, all);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn any_bytes_are_read_without_a_panic(tail in prop::collection::vec(any::<u8>(), 0..4096), used: u64) {
            let mut bytes = header(used as usize);
            bytes.extend(tail);
            read(&bytes);
        }

        #[test]
        fn changed_bytes_are_read_without_a_panic(
            changes in prop::collection::vec((0..4096_usize, prop_oneof![Just(0), Just(0xFF), any::<u8>()]), 1..20),
            cut in 0..4096_usize,
        ) {
            let mut bytes = whole();
            let records = bytes.len() - HEADER;
            for (at, to) in changes {
                bytes[HEADER + at % records] = to;
            }
            bytes.truncate(bytes.len() - cut % records);
            read(&bytes);
        }
    }
}
