//! What the fuzz targets run. The engine's: operations read from arbitrary bytes, its answers
//! compared with the [`model`](crate::model)'s. The wire's: arbitrary bytes as packets,
//! and as captures of them. What a traced program left: arbitrary bytes as the file of a process, as what
//! a recording is put together from, and as a recording.

mod abandoned;
mod capture;
mod trace;
mod wire;

use crate::model::{Mix, run};

/// A target: any bytes will do; panics where what must hold does not.
pub type Target = fn(&[u8]);

/// The targets and their names, which are those of their programs and corpora.
pub const TARGETS: &[(&str, Target)] = &[
    ("access_check", fuzz_access_check),
    ("pcap", fuzz_pcap),
    ("raw_records", fuzz_raw_records),
    ("roce_frame", fuzz_roce_frame),
    ("roce_packet", fuzz_roce_packet),
    ("trace_assembly", fuzz_trace_assembly),
    ("trace_format", fuzz_trace_format),
    ("work_request", fuzz_work_request),
];

/// Accesses, most of them: any key, domain, queue pair, address and length.
pub fn fuzz_access_check(data: &[u8]) {
    run(data, Mix::Accesses);
}

/// Memory-management work requests: bind, invalidate, fast registration.
pub fn fuzz_work_request(data: &[u8]) {
    run(data, Mix::WorkRequests);
}

/// What a traced process wrote after its file's header, as it may be found when the process was killed.
pub fn fuzz_raw_records(data: &[u8]) {
    abandoned::records(data);
}

/// A UDP datagram, as a peer may send it: what is read from it is written as the same bytes.
pub fn fuzz_roce_packet(data: &[u8]) {
    wire::packet(data);
}

/// A frame of a capture: an even first byte for one that begins with Ethernet, an odd one for one
/// that begins with IP. Its packet, sealed anew, has the ICRC of its bytes.
pub fn fuzz_roce_frame(data: &[u8]) {
    wire::frame(data);
}

/// A capture file, as `mkey pcap` reads it: what it makes of it is consistent in itself.
pub fn fuzz_pcap(data: &[u8]) {
    capture::file(data);
}

/// A recording: what is read of it is written, and read as the same.
pub fn fuzz_trace_format(data: &[u8]) {
    trace::recording(data);
}

/// The file of a traced process: whatever it holds, a recording comes of it that can be read.
pub fn fuzz_trace_assembly(data: &[u8]) {
    trace::assembly(data);
}
