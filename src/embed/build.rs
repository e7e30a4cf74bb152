//! Lays the linear layers of the built-in model out in the order in which its arithmetic reads them: `[inputs, outputs]`
//! becomes `[outputs / 16][inputs / 2][16][2]`. All else of the file stays as it is.

use std::path::Path;

mod onnx;

/// `kernels::WIDTH`.
const WIDTH: usize = 16;

fn main() {
    let source = "weights/minilm-w8.onnx";
    println!("cargo::rerun-if-changed={source}");
    println!("cargo::rerun-if-changed=onnx.rs");
    let model = std::fs::read(source).expect("the model can be read");
    let mut panels = model.clone();
    for tensor in onnx::tensors(&model).filter(|tensor| tensor.name.ends_with(".weight_t_q")) {
        let outputs = tensor.shape[1];
        let start = tensor.bytes.as_ptr().addr() - model.as_ptr().addr();
        let mut target = panels[start..start + tensor.bytes.len()].iter_mut();
        for column in (0..outputs).step_by(WIDTH) {
            for rows in tensor.bytes.chunks_exact(2 * outputs) {
                let numbers = (column..column + WIDTH).flat_map(|at| [rows[at], rows[outputs + at]]);
                target.by_ref().zip(numbers).for_each(|(target, number)| *target = number);
            }
        }
    }
    let folder = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    std::fs::write(Path::new(&folder).join("minilm-w8.panels"), panels).expect("OUT_DIR can be written");
}
