//! The formulas of ranking.

/// The constant of reciprocal rank fusion (Cormack, Clarke and Büttcher, SIGIR 2009, section 2).
pub const RRF_K: f64 = 60.0;

/// The contribution of one list to an item at `rank` (0 for the first): `1 / (k + rank + 1)`.
pub fn reciprocal_rank(rank: usize, k: f64) -> f64 {
    1.0 / (k + rank as f64 + 1.0)
}

/// The freshness of a unit by its age: 1 today, one half after `half_life_days`.
pub fn freshness(age_days: f64, half_life_days: f64) -> f64 {
    0.5_f64.powf(age_days.max(0.0) / half_life_days)
}

/// The weight of a source, from 0 to 1. What a person wrote ranks above what a model extracted from a session, and
/// that above what rules found offline.
pub fn source_tier(source: &str) -> f64 {
    match source {
        "human" | "manual" | "import" => 1.0,
        "session" | "claude" | "claude-api" | "claude-p" => 0.8,
        "heuristic" => 0.6,
        "" => 0.9,
        _ => 0.8,
    }
}

/// The factor that trust applies to relevance: `1 + w·(c - ½) + w·(f - ½) + w·(s - ½)`, with `w` = 0.1.
///
/// It changes a score by at most 15 %: enough to decide between passages of about equal relevance, and too little to
/// lift one that is off the subject.
pub fn trust(confidence: f64, freshness: f64, source: f64) -> f64 {
    const WEIGHT: f64 = 0.1;
    let centred = |x: f64| if x.is_finite() { x.clamp(0.0, 1.0) - 0.5 } else { 0.0 };
    1.0 + WEIGHT * (centred(confidence) + centred(freshness) + centred(source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_is_bounded_for_any_confidence() {
        for confidence in [f64::NAN, f64::INFINITY, -1e9, 0.0, 0.5, 1.0, 1e9] {
            let factor = trust(confidence, 1.0, 1.0);
            assert!((0.85..=1.15).contains(&factor), "{confidence} gives {factor}");
        }
    }

    #[test]
    fn freshness_halves_after_its_half_life() {
        assert!((freshness(0.0, 365.0) - 1.0).abs() < 1e-12);
        assert!((freshness(365.0, 365.0) - 0.5).abs() < 1e-12);
        assert!((freshness(-10.0, 365.0) - 1.0).abs() < 1e-12);
    }
}
