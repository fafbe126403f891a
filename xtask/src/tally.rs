//! Counting: how many tests a runner says it ran.

use std::ops::AddAssign;

/// How many tests (or checks) passed, failed and were skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub passed: u64,
    pub failed: u64,
    pub skipped: u64,
}

impl Tally {
    /// Adds up the closing lines of libtest (`test result: ...`) and nextest (`Summary ...`) in
    /// `text`. What a filter left out, or `#[ignore]`, is not counted: it was not asked for. A
    /// test that found that it cannot run here reports that itself (`XTASK_SKIPS`).
    pub fn read(text: &str) -> Self {
        let mut sum = Self::default();
        for line in text.lines() {
            let line = line.trim_start();
            if let Some(counts) = line.strip_prefix("test result: ") {
                sum.passed += before(counts, "passed");
                sum.failed += before(counts, "failed");
            } else if let Some(counts) = line.strip_prefix("Summary [") {
                sum.passed += before(counts, "passed");
                sum.failed += before(counts, "failed") + before(counts, "timed out");
                sum.failed += before(counts, "exec failed");
            }
        }
        sum
    }

    /// How many there are in all.
    pub fn total(self) -> u64 {
        self.passed + self.failed + self.skipped
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// The number right before `word` in `counts`, 0 if it is not there.
fn before(counts: &str, word: &str) -> u64 {
    let mut pieces = counts.split([',', ';', '.', ':', '(']).map(str::trim);
    pieces
        .find_map(|piece| {
            let rest = piece.strip_suffix(')').unwrap_or(piece);
            let (number, said) = rest.split_once(' ')?;
            if said == word { number.parse().ok() } else { None }
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(passed: u64, failed: u64) -> Tally {
        Tally { passed, failed, skipped: 0 }
    }

    #[test]
    fn libtest_lines_add_up() {
        let text = "\
running 3 tests
test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.00s
test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1s
";
        assert_eq!(Tally::read(text), tally(7, 2));
    }

    #[test]
    fn nextest_summaries_are_read() {
        let text = "     Summary [   0.005s] 3 tests run: 3 passed, 0 skipped\n";
        assert_eq!(Tally::read(text), tally(3, 0));
        let text =
            "  Summary [   1.2s] 9 tests run: 6 passed (1 slow), 2 failed, 1 timed out, 4 skipped";
        assert_eq!(Tally::read(text), tally(6, 3));
        let text = "     Summary [   0.005s] 1/5 tests run: 0 passed, 1 exec failed, 0 skipped\n";
        assert_eq!(Tally::read(text), tally(0, 1));
    }

    #[test]
    fn output_without_a_closing_line_counts_nothing() {
        assert_eq!(Tally::read("3 passed in a dream\nSummary of it: 4 passed"), Tally::default());
    }
}
