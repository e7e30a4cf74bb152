//! Whether units help: sessions that were shown a unit against those that it was withheld from.

use serde::Serialize;

use crate::interval::{Interval, Z, of_difference};

/// Whether a unit is withheld from a session, for a share of all pairs. Always the same for the same pair, and a pair
/// withheld at a share is withheld at every larger one.
pub fn is_withheld(session: &str, unit: &str, share: f64) -> bool {
    let mut hasher = blake3::Hasher::new_derive_key("nugget 2026-11 receipts holdout");
    hasher.update(&(session.len() as u64).to_le_bytes());
    hasher.update(session.as_bytes());
    hasher.update(unit.as_bytes());
    let hash = hasher.finalize();
    let bits = hash.as_bytes()[..8].iter().fold(0, |bits, byte| bits << 8 | u64::from(*byte));
    ((bits >> 11) as f64) / ((1u64 << 53) as f64) < share
}

/// Events in a number of cases: failures that happened again after a session was shown a unit that names them, for example.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    /// With the event.
    pub events: u64,
    /// All.
    pub total: u64,
}

/// What a hold-out says.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Receipt {
    /// Not enough data yet: no claim.
    NotEnoughData {
        /// Sessions that were shown units, and those of them with an event.
        shown: Count,
        /// Sessions that units were withheld from.
        withheld: Count,
    },
    /// The share with the event among those shown, less that among those withheld.
    Difference {
        /// With its 95 % interval.
        difference: Interval,
        /// Whether the interval leaves out 0.
        is_clear: bool,
    },
}

/// The sessions that each side needs before anything is said. No number of events is asked for: to wait for events and
/// then to look would make the interval cover less.
pub const SESSIONS_MIN: u64 = 30;

/// For a claim. Newcombe's interval leaves out 0 in up to 5.7 % of the cases without an effect (50 sessions on each side, a
/// share of a half); this wider one does in at most 4.1 %.
const Z_OF_CLAIM: f64 = 2.1;

/// Compares both sides of a hold-out, of which each has one count for each session: its units and those with the event. The
/// interval is Newcombe's for the difference of two shares (1998, method 10), of as many sessions as theirs of different
/// sizes are worth (Kish 1965): what happens in one session happens for all of its units.
pub fn compare(shown: &[Count], withheld: &[Count]) -> Receipt {
    let (shown, withheld) = (Side::new(shown), Side::new(withheld));
    if shown.sessions.total.min(withheld.sessions.total) < SESSIONS_MIN {
        return Receipt::NotEnoughData { shown: shown.sessions, withheld: withheld.sessions };
    }
    difference_of(&shown, &withheld)
}

/// One side of a hold-out.
struct Side {
    sessions: Count,
    /// The share of its units with the event, times how many sessions count; and those.
    share: (f64, f64),
}

impl Side {
    fn new(sessions: &[Count]) -> Self {
        let sessions: Vec<Count> = sessions.iter().filter(|session| session.total > 0).copied().collect();
        let sum = |of: fn(&Count) -> f64| sessions.iter().map(of).sum::<f64>();
        let total = sum(|session| session.total as f64);
        let share = sum(|session| session.events.min(session.total) as f64) / total;
        let worth = total * total / sum(|session| (session.total as f64).powi(2));
        let events = sessions.iter().filter(|session| session.events > 0).count() as u64;
        Self { sessions: Count { events, total: sessions.len() as u64 }, share: (share * worth, worth) }
    }
}

fn difference_of(shown: &Side, withheld: &Side) -> Receipt {
    let difference = |z: f64| of_difference(shown.share, withheld.share, z);
    let claim = difference(Z_OF_CLAIM);
    Receipt::Difference { difference: difference(Z), is_clear: claim.low > 0.0 || claim.high < 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn withholding_is_stable_and_monotonous_and_keeps_the_share() {
        // Recorded: another hash would move sessions from one side to the other.
        assert!(
            is_withheld("session-2", "unit", 0.1) == RECORDED[0] && is_withheld("s", "u", 0.5) == RECORDED[1]
        );
        let pairs: Vec<(String, String)> =
            (0..20_000).map(|at| (format!("s{}", at / 100), format!("u{}", at % 100))).collect();
        let withheld = |share: f64| -> Vec<bool> {
            pairs.iter().map(|(session, unit)| is_withheld(session, unit, share)).collect()
        };
        for share in [0.0, 0.1, 0.5, 1.0] {
            let count = withheld(share).iter().filter(|is_withheld| **is_withheld).count() as f64;
            let error = (share * (1.0 - share) / 20_000.0f64).sqrt();
            assert!((count / 20_000.0 - share).abs() <= 4.0 * error, "{share}: {count}");
        }
        assert!(withheld(0.1).iter().zip(withheld(0.2)).all(|(less, more)| !less || more));
        assert!(!is_withheld("s", "u", f64::NAN) && !is_withheld("s", "u", -1.0));
        assert!((0..64).any(|at| {
            let name = format!("{at}");
            is_withheld(&format!("a{name}"), "b", 0.5) != is_withheld("a", &format!("{name}b"), 0.5)
        }));
    }

    const RECORDED: [bool; 2] = [false, false];

    /// The probabilities of 0 to `total` events.
    fn binomial(total: u64, share: f64) -> Vec<f64> {
        let mut probabilities = vec![0.0; total as usize + 1];
        probabilities[0] = 1.0;
        for _ in 0..total {
            for events in (1..probabilities.len()).rev() {
                probabilities[events] =
                    probabilities[events] * (1.0 - share) + probabilities[events - 1] * share;
            }
            probabilities[0] *= 1.0 - share;
        }
        probabilities
    }

    /// The exact probabilities that the interval covers the difference, and that there is a claim.
    fn coverage(totals: (u64, u64), shares: (f64, f64)) -> (f64, f64) {
        let (mut covered, mut claimed) = (0.0, 0.0);
        let of_withheld = binomial(totals.1, shares.1);
        for (events, probability) in binomial(totals.0, shares.0).into_iter().enumerate() {
            for (others, other) in of_withheld.iter().enumerate() {
                let shown = Count { events: events as u64, total: totals.0 };
                let withheld = Count { events: others as u64, total: totals.1 };
                let of_one =
                    |count: Count| Side { sessions: count, share: (count.events as f64, count.total as f64) };
                let Receipt::Difference { difference, is_clear } =
                    difference_of(&of_one(shown), &of_one(withheld))
                else {
                    panic!("no difference");
                };
                let truth = shares.0 - shares.1;
                let both = probability * other;
                covered += if difference.low <= truth && truth <= difference.high { both } else { 0.0 };
                claimed += if is_clear { both } else { 0.0 };
            }
        }
        (covered, claimed)
    }

    /// Of sessions shown and withheld: even, by a tenth, by a quarter, odd numbers.
    const TOTALS: [(u64, u64); 8] =
        [(30, 30), (35, 33), (40, 40), (50, 50), (90, 30), (200, 200), (270, 30), (450, 50)];

    #[test]
    fn intervals_cover_the_effect_in_93_to_97_of_100() {
        for totals in TOTALS {
            for share in [0.15, 0.3, 0.5, 0.7] {
                for effect in [0.0, 0.05, 0.1, 0.15] {
                    let (covered, _) = coverage(totals, (share, share + effect));
                    assert!((covered - 0.95).abs() <= 0.02, "{totals:?} {share} {effect}: {covered}");
                }
            }
        }
    }

    #[test]
    fn without_an_effect_at_most_5_of_100_are_claimed() {
        let mut most: f64 = 0.0;
        for totals in TOTALS {
            for share in [0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.45, 0.47, 0.5, 0.6, 0.8, 0.95, 0.98] {
                most = most.max(coverage(totals, (share, share)).1);
            }
        }
        println!("at most {most}");
        assert!(most <= 0.05);
        assert!(coverage((200, 200), (0.2, 0.4)).1 > 0.9, "a large effect is claimed");
    }

    #[test]
    fn a_simulated_hold_out_covers_its_effect() {
        const REPEATS: u64 = 2000;
        let (mut covered, mut claimed) = (0, 0);
        for seed in 0..REPEATS {
            let mut random = fastrand::Rng::with_seed(seed);
            let effect = if seed % 2 == 0 { 0.0 } else { 0.2 };
            let (mut shown, mut withheld) = (Vec::new(), Vec::new());
            for session in 0..400 {
                let is_withheld = is_withheld(&format!("{seed}-{session}"), "unit", 0.2);
                let side = if is_withheld { &mut withheld } else { &mut shown };
                let share = if is_withheld { 0.4 } else { 0.4 - effect };
                side.push(Count { events: u64::from(random.f64() < share), total: 1 });
            }
            let Receipt::Difference { difference, is_clear } = compare(&shown, &withheld) else {
                panic!("enough data");
            };
            covered += u64::from(difference.low <= -effect && -effect <= difference.high);
            claimed += u64::from(is_clear && effect == 0.0);
        }
        println!("seeds 0 to {REPEATS}: {covered} covered, {claimed} false alarms of {}", REPEATS / 2);
        assert!((covered as f64 / REPEATS as f64 - 0.95).abs() <= 0.02);
        assert!(claimed as f64 / (REPEATS / 2) as f64 <= 0.05);
    }

    #[test]
    fn what_a_session_does_with_all_its_units_counts_once() {
        const REPEATS: u64 = 1000;
        let mut claimed = 0;
        for seed in 0..REPEATS {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut shown, mut withheld) = (Vec::new(), Vec::new());
            for session in 0..200 {
                let has_failed = random.f64() < 0.3;
                let units = random.u64(1..12);
                let is_withheld =
                    |unit: &u64| is_withheld(&format!("{seed}-{session}"), &unit.to_string(), 0.2);
                let less = (0..units).filter(is_withheld).count() as u64;
                for (side, total) in [(&mut shown, units - less), (&mut withheld, less)] {
                    side.push(Count { events: if has_failed { total } else { 0 }, total });
                }
            }
            let Receipt::Difference { is_clear, .. } = compare(&shown, &withheld) else {
                panic!("enough data")
            };
            claimed += u64::from(is_clear);
        }
        println!("seeds 0 to {REPEATS}: {claimed} false alarms");
        assert!(claimed as f64 / REPEATS as f64 <= 0.05);
    }

    #[test]
    fn little_data_gives_no_claim() {
        let failed = vec![Count { events: 1, total: 1 }; 29];
        let many = vec![Count { events: 0, total: 1 }; 1000];
        let sessions = |events, total| Count { events, total };
        let expected = Receipt::NotEnoughData { shown: sessions(29, 29), withheld: sessions(0, 1000) };
        assert_eq!(compare(&failed, &many), expected);
        assert!(matches!(compare(&many, &failed), Receipt::NotEnoughData { .. }));
        assert!(matches!(compare(&many, &many), Receipt::Difference { is_clear: false, .. }));
        assert!(matches!(compare(&[], &[]), Receipt::NotEnoughData { .. }));
        // Many units of few sessions.
        let four = [Count { events: 10, total: 10 }, sessions(0, 10), sessions(0, 10), sessions(0, 10)];
        let expected = Receipt::NotEnoughData { shown: sessions(1, 4), withheld: sessions(0, 1000) };
        assert_eq!(compare(&four, &many), expected);
        let nonsense = vec![Count { events: u64::MAX, total: 1 }; 40];
        assert!(matches!(compare(&nonsense, &many), Receipt::Difference { is_clear: true, .. }));
    }
}
