//! The log of refusals: why a work request failed, in words. A completion's `vendor_err` is the
//! number of its entry.

use crate::listener::Listener;
use crate::sync::lock;
use mkey_core::device::{RefusalReport, RefusedBy};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct RefusalLog {
    most: usize,
    listener: Option<Arc<dyn Listener>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: u32,
    reports: VecDeque<RefusalReport>,
}

impl RefusalLog {
    pub(crate) fn new(most: usize, listener: Option<Arc<dyn Listener>>) -> Self {
        Self { most, listener, state: Mutex::default() }
    }

    /// Notes a refusal; its number, from 1. `tell`: also whoever is told of each.
    pub(crate) fn record(
        &self,
        when: Duration,
        qp_num: u32,
        request: &dyn fmt::Display,
        refusal: RefusedBy,
        tell: bool,
    ) -> u32 {
        let mut state = lock(&self.state);
        state.last = state.last.wrapping_add(1).max(1);
        let number = state.last;
        let told = self.listener.as_ref().filter(|_| tell);
        if self.most > 0 || told.is_some() {
            if state.reports.len() >= self.most {
                state.reports.pop_front();
            }
            let request = request.to_string();
            let report = RefusalReport { number, when, qp_num, request, refusal };
            if let Some(told) = told {
                told.refused(&report);
            }
            if self.most > 0 {
                state.reports.push_back(report);
            }
        }
        number
    }

    pub(crate) fn reports(&self) -> Vec<RefusalReport> {
        lock(&self.state).reports.iter().cloned().collect()
    }
}
