//! A reader for the tensors of an ONNX file, without the runtime and without copying. It reads only the protobuf fields
//! that it needs. Field numbers: `onnx.proto` of the ONNX project (ModelProto, GraphProto, TensorProto).

/// A constant of the graph; its data is a part of the file's bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tensor<'b> {
    pub(crate) name: &'b str,
    pub(crate) shape: Vec<usize>,
    pub(crate) kind: Kind,
    pub(crate) bytes: &'b [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    F32,
    I8,
    Other,
}

/// All constants with their data in `raw_data`. A truncated file has none.
pub(crate) fn tensors(model: &[u8]) -> impl Iterator<Item = Tensor<'_>> {
    const MODEL_GRAPH: u64 = 7;
    const GRAPH_INITIALIZER: u64 = 5;
    Fields(model)
        .filter_map(|(number, value)| value.bytes_if(number == MODEL_GRAPH))
        .flat_map(Fields)
        .filter_map(|(number, value)| value.bytes_if(number == GRAPH_INITIALIZER))
        .filter_map(tensor)
}

fn tensor(message: &[u8]) -> Option<Tensor<'_>> {
    const DIMS: u64 = 1;
    const DATA_TYPE: u64 = 2;
    const NAME: u64 = 8;
    const RAW_DATA: u64 = 9;
    let mut tensor = Tensor { name: "", shape: Vec::new(), kind: Kind::Other, bytes: &[] };
    for (number, value) in Fields(message) {
        match (number, value) {
            (DIMS, Value::Number(dimension)) => tensor.shape.push(usize::try_from(dimension).ok()?),
            (DIMS, Value::Bytes(mut packed)) => {
                while !packed.is_empty() {
                    tensor.shape.push(usize::try_from(varint(&mut packed)?).ok()?);
                }
            }
            (DATA_TYPE, Value::Number(1)) => tensor.kind = Kind::F32,
            (DATA_TYPE, Value::Number(3)) => tensor.kind = Kind::I8,
            (NAME, Value::Bytes(name)) => tensor.name = std::str::from_utf8(name).ok()?,
            (RAW_DATA, Value::Bytes(raw)) => tensor.bytes = raw,
            _ => {}
        }
    }
    let width = match tensor.kind {
        Kind::F32 => 4,
        Kind::I8 => 1,
        Kind::Other => return None,
    };
    // The lengths differ if the data is in another field or in another file.
    let length = tensor.shape.iter().try_fold(width, |product: usize, &n| product.checked_mul(n))?;
    (length == tensor.bytes.len()).then_some(tensor)
}

enum Value<'b> {
    Number(u64),
    Bytes(&'b [u8]),
}

impl<'b> Value<'b> {
    fn bytes_if(self, wanted: bool) -> Option<&'b [u8]> {
        match self {
            Value::Bytes(bytes) if wanted => Some(bytes),
            _ => None,
        }
    }
}

/// The fields of one message, in order; ends at the first invalid byte.
struct Fields<'b>(&'b [u8]);

impl<'b> Iterator for Fields<'b> {
    type Item = (u64, Value<'b>);

    fn next(&mut self) -> Option<Self::Item> {
        let key = varint(&mut self.0)?;
        let value = match key & 7 {
            0 => Value::Number(varint(&mut self.0)?),
            1 => Value::Bytes(self.take(8)?),
            2 => {
                let length = usize::try_from(varint(&mut self.0)?).ok()?;
                Value::Bytes(self.take(length)?)
            }
            5 => Value::Bytes(self.take(4)?),
            _ => return None,
        };
        Some((key >> 3, value))
    }
}

impl<'b> Fields<'b> {
    fn take(&mut self, length: usize) -> Option<&'b [u8]> {
        let (head, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(head)
    }
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::BUILT_IN_MODEL;

    #[test]
    fn the_built_in_model_has_tensors() {
        let table = tensors(BUILT_IN_MODEL).find(|tensor| tensor.name == "position_embeddings_q").unwrap();
        assert_eq!((table.shape.as_slice(), table.kind), (&[512, 384][..], Kind::I8));
    }

    #[test]
    fn a_truncated_or_invalid_file_has_no_tensors() {
        let all = tensors(BUILT_IN_MODEL).count();
        assert!(all > 50, "{all}");
        for cut in [0, 1, 7, 100, 1_000_000, BUILT_IN_MODEL.len() / 2] {
            assert_eq!(tensors(&BUILT_IN_MODEL[..cut]).count(), 0, "cut at {cut}");
        }
        for byte in 0..=255_u8 {
            assert_eq!(tensors(&[byte; 64]).count(), 0);
        }
        // A length that would overflow if it were added to a position.
        assert_eq!(tensors(&[0x3a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]).count(), 0);
    }
}
