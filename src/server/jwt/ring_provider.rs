//! Verifies signatures with ring, which rustls has in any case: `jsonwebtoken`'s own backends would add aws-lc, or the
//! `rsa` crate with its timing problem (RUSTSEC-2023-0071).

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
    VerificationAlgorithm,
};
use signature::Verifier;

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(Error::from(ErrorKind::InvalidAlgorithm)),
    verifier_factory: |algorithm, key| match algorithm {
        Algorithm::RS256 | Algorithm::ES256 | Algorithm::EdDSA => {
            Ok(Box::new(RingVerifier { algorithm: *algorithm, key: key.clone() }))
        }
        _ => Err(Error::from(ErrorKind::InvalidAlgorithm)),
    },
    // For making JWKs out of private keys, which nothing here does.
    key_utils: KeyUtils::new_unimplemented(),
};

/// Makes ring the process's provider.
pub(super) fn install() {
    // Fails if it is installed already.
    let _ = PROVIDER.install_default();
}

struct RingVerifier {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let verify = |algorithm: &'static dyn VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(algorithm, key).verify(message, signature)
        };
        let verified = match (self.algorithm, self.key.kind()) {
            (Algorithm::RS256, DecodingKeyKind::RsaModulusExponent { n, e }) => {
                let key = RsaPublicKeyComponents { n: without_leading_zeros(n), e: without_leading_zeros(e) };
                key.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
            }
            (Algorithm::ES256, DecodingKeyKind::SecretOrDer(point)) => {
                verify(&ECDSA_P256_SHA256_FIXED, point)
            }
            (Algorithm::EdDSA, DecodingKeyKind::SecretOrDer(point)) => verify(&ED25519, point),
            _ => return Err(signature::Error::new()),
        };
        verified.map_err(|_| signature::Error::new())
    }
}

/// ring refuses the zeros that some issuers put before a number.
fn without_leading_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    &number[zeros..]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7515, appendix A.2.
    const MODULUS: &str = "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ";
    const MESSAGE: &str = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    const SIGNATURE: &str = "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";

    #[test]
    fn an_rsa_signature_is_verified() {
        install();
        let key = DecodingKey::from_rsa_components(MODULUS, "AQAB").unwrap();
        let verify = |message: &str, key: &DecodingKey| {
            jsonwebtoken::crypto::verify(SIGNATURE, message.as_bytes(), key, Algorithm::RS256).unwrap()
        };
        assert!(verify(MESSAGE, &key));
        assert!(!verify(&MESSAGE.replace("eyJpc3", "eyJpc4"), &key));
        // As some issuers write it: with a zero before the number.
        let DecodingKeyKind::RsaModulusExponent { n, e } = key.kind() else { unreachable!() };
        let padded = DecodingKey::from_rsa_raw_components(&[&[0][..], n].concat(), e);
        assert!(verify(MESSAGE, &padded));
        let other = DecodingKey::from_rsa_raw_components(&n[1..], e);
        assert!(!verify(MESSAGE, &other));
    }
}
