//! What several test programs share: captures, read by a crate that knows nothing of ours.

use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{LegacyPcapReader, PcapBlockOwned, PcapError};

/// A captured frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub seconds: u32,
    /// Micro- or nanoseconds, as the capture has it.
    pub fraction: u32,
    /// Its length when it travelled.
    pub length: usize,
    pub bytes: Vec<u8>,
}

/// The link type of a capture, and its frames.
pub fn read(capture: &[u8]) -> (i32, Vec<Record>) {
    let mut reader = LegacyPcapReader::new(1 << 20, capture).expect("a capture");
    let (mut link, mut records) = (None, Vec::new());
    loop {
        match reader.next() {
            Ok((used, PcapBlockOwned::LegacyHeader(header))) => {
                link = Some(header.network.0);
                reader.consume(used);
            }
            Ok((used, PcapBlockOwned::Legacy(block))) => {
                records.push(Record {
                    seconds: block.ts_sec,
                    fraction: block.ts_usec,
                    length: block.origlen as usize,
                    bytes: block.data.to_vec(),
                });
                reader.consume(used);
            }
            Ok((_, PcapBlockOwned::NG(block))) => panic!("a block of another format: {block:?}"),
            Err(PcapError::Eof) => return (link.expect("a header"), records),
            Err(PcapError::Incomplete(_)) => reader.refill().expect("memory"),
            Err(error) => panic!("{error:?}"),
        }
    }
}
