//! Files that traced processes leave.

use mkey_trace::raw::{ALIGN, Call, File, HEADER, Kind, MAGIC, Mr, Queue, Record, Stack};

/// The first 8 bytes are what the header says was used, the others the records: the header is too long for
/// a fuzzer to come to what is behind it.
pub(super) fn records(data: &[u8]) {
    let _ = File::parse(data);
    let (used, records) = data.split_at(data.len().min(8));
    let mut bytes = vec![0; HEADER];
    bytes[..8].copy_from_slice(&MAGIC);
    let at = std::mem::offset_of!(mkey_trace::raw::Header, used);
    bytes[at..at + used.len()].copy_from_slice(used);
    bytes.extend(records);
    let file = File::parse(&bytes).expect("it has a header");
    let mut end = HEADER;
    for (slot, record) in file.records() {
        let at = slot as usize * ALIGN;
        assert!(at >= end && at < bytes.len(), "records follow each other");
        end = at + ALIGN;
        let tail = match record {
            Record::Stack(stack, tail) => {
                assert_eq!(tail.len(), stack.bytes as usize);
                tail
            }
            Record::Module(module, tail) => {
                assert_eq!(tail.len(), module.name as usize);
                tail
            }
            Record::Device(_, tail) | Record::Maps(_, tail) => tail,
            _ => &[],
        };
        assert!(tail.len() <= bytes.len() - at);
        assert!(file.record(slot).is_some(), "it has the same by its name");
        let kinds = [
            (file.get::<Call>(slot).is_some(), Call::KIND),
            (file.get::<Mr>(slot).is_some(), Mr::KIND),
            (file.get::<Queue>(slot).is_some(), Queue::KIND),
            (file.get::<Stack>(slot).is_some(), Stack::KIND),
        ];
        let kind = match record {
            Record::Call(_) => Call::KIND,
            Record::Mr(_) => Mr::KIND,
            Record::Queue(_) => Queue::KIND,
            Record::Stack(..) => Stack::KIND,
            _ => 0,
        };
        assert!(kinds.into_iter().all(|(is, of)| is == (of == kind)), "and as what it is alone");
    }
}
