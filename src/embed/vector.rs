//! Normalisation of vectors.

/// Scales to length 1. A vector without a direction is an error, since its distances would mean nothing.
pub(crate) fn normalized(mut vector: Vec<f32>) -> Result<Vec<f32>, String> {
    let norm = vector.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt();
    if !norm.is_finite() {
        return Err("it has numbers that are not finite".to_owned());
    }
    if norm < 1e-12 {
        return Err("it is zero".to_owned());
    }
    for x in &mut vector {
        *x = (f64::from(*x) / norm) as f32;
    }
    Ok(vector)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_without_a_direction_is_an_error() {
        assert!(normalized(vec![0.0; 4]).is_err());
        assert!(normalized(vec![1.0, f32::NAN]).is_err());
        assert!(normalized(vec![1.0, f32::INFINITY]).is_err());
        assert_eq!(normalized(vec![3.0, 4.0]).unwrap(), [0.6, 0.8]);
    }
}
