//! The target: takes requests, moves the data by RDMA between its disk and the initiator's buffer,
//! and answers.

use super::capsule::{Op, Request, response};
use super::disk::Disk;
use super::side::{BATCH, Side};
use crate::bench::error::{Result, RowError};
use mkey::{Completion, Work};

/// The target's end.
#[derive(Debug)]
pub struct Target {
    /// Its end of the connection.
    pub side: Side,
    /// Whether it ends the key of each request with its response (SEND_WITH_INV).
    pub invalidates: bool,
}

impl Target {
    /// Serves the requests that have come; how many.
    ///
    /// # Errors
    /// As work fails, or a request makes no sense.
    pub fn serve(&mut self, disk: &Disk) -> Result<usize> {
        let mut completions = [Completion::BLANK; BATCH];
        let mut served = 0;
        for receive in self.side.poll(&mut completions)? {
            let mut bytes = [0; Request::BYTES];
            self.side.received(receive)?.read(0, &mut bytes)?;
            let request = Request::from_bytes(&bytes)
                .ok_or(RowError::Protocol("a request of no known kind"))?;
            // The buffer is free again before the response lets the initiator ask for more.
            self.side.post_recv(receive)?;
            self.answer(disk, &request)?;
            served += 1;
        }
        Ok(served)
    }

    /// Moves the data and says so, in one chain.
    fn answer(&mut self, disk: &Disk, request: &Request) -> Result<()> {
        let block = [disk.memory(request.offset)?];
        let tag = response(request.tag);
        let mut answer = Work::send_inline(&tag);
        if self.invalidates {
            answer = answer.invalidating(request.buffer.key);
        }
        let answer = self.side.counted(answer);
        let chain = match request.op {
            // The response arrives after the data: one queue pair, one order.
            Op::Read => [Work::write(&block, request.buffer).unsignaled(), answer],
            // What is read has to be here before the initiator's buffer is its own again.
            Op::Write => [Work::read(&block, request.buffer).unsignaled(), answer.fenced()],
        };
        Ok(self.side.qp.post(&chain)?)
    }
}
