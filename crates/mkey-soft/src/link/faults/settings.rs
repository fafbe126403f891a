//! What faults a link is to have.

use std::str::FromStr;
use std::time::Duration;

/// What befalls the packets that a device sends by its link: chances in parts of a million. The same
/// seed gives the same faults to the same packets. What is executed inline is no packet.
///
/// It is written as in `loss=1%,dup=0.1%,reorder=1%,delay=1ms,corrupt=0.1%,seed=7`, each part of
/// which may be left out:
///
/// ```
/// let faults: mkey_soft::Faults = "loss=1%,delay=50us".parse()?;
/// assert_eq!((faults.loss, faults.delay.as_micros()), (10_000, 50));
/// # Ok::<(), mkey_soft::FaultsError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Packets that do not arrive.
    pub loss: u32,
    /// Packets that arrive twice.
    pub duplication: u32,
    /// Packets that arrive after the one that was sent after them.
    pub reordering: u32,
    /// Packets of which a bit is turned over. The receiver drops them for their ICRC.
    pub corruption: u32,
    /// How much later each packet arrives.
    pub delay: Duration,
    /// Which packets it befalls.
    pub seed: u64,
}

/// Words that name no faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultsError(Box<str>);

impl std::error::Error for FaultsError {}

impl std::fmt::Display for FaultsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:?} is no fault: loss, dup, reorder and corrupt are each like loss=1%, from 0% to 100%; \
             delay is like delay=1ms, in ns, us, ms or s; seed is like seed=1",
            self.0
        )
    }
}

impl FromStr for Faults {
    type Err = FaultsError;

    fn from_str(text: &str) -> Result<Self, FaultsError> {
        let mut faults = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let set = part.split_once('=').and_then(|(name, value)| {
                match name.trim() {
                    "loss" => faults.loss = chance(value)?,
                    "dup" => faults.duplication = chance(value)?,
                    "reorder" => faults.reordering = chance(value)?,
                    "corrupt" => faults.corruption = chance(value)?,
                    "delay" => faults.delay = time(value)?,
                    "seed" => faults.seed = value.trim().parse().ok()?,
                    _ => return None,
                }
                Some(())
            });
            set.ok_or_else(|| FaultsError(part.into()))?;
        }
        Ok(faults)
    }
}

/// Parts of a million, of a number of percent or a fraction of 1.
fn chance(value: &str) -> Option<u32> {
    let value = value.trim();
    let (number, whole) = match value.strip_suffix('%') {
        Some(percent) => (percent, 100.0),
        None => (value, 1.0),
    };
    let part = number.trim().parse::<f64>().ok()? / whole;
    (0.0..=1.0).contains(&part).then(|| (part * 1e6).round() as u32)
}

fn time(value: &str) -> Option<Duration> {
    let value = value.trim();
    let digits = value.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(value.len());
    let (number, unit) = value.split_at_checked(digits)?;
    let seconds = match unit.trim() {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_from_words() {
        let faults: Faults =
            "loss=1%, dup=0.1%,reorder=0.5,delay=1.5ms,corrupt=100%,seed=7".parse().unwrap();
        let wanted = Faults {
            loss: 10_000,
            duplication: 1000,
            reordering: 500_000,
            corruption: 1_000_000,
            delay: Duration::from_micros(1500),
            seed: 7,
        };
        assert_eq!(faults, wanted);
        assert_eq!("".parse(), Ok(Faults::default()));
        for wrong in
            ["loss", "loss=2", "loss=-1%", "dup=x%", "delay=1", "delay=1h", "seed=a", "lose=1%"]
        {
            let error = wrong.parse::<Faults>().unwrap_err();
            assert!(error.to_string().contains(wrong), "{error}");
        }
    }
}
