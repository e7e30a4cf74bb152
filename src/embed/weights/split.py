"""Makes the graph of `w8.py` cheap to load. The word embeddings go out of it: their table by itself, `inputs_embeds` in
their place. And the scales of linear layers go behind the product, as x (W s) = (x W) s for scales of output channels: a
runtime that computes constants ahead then keeps one f32 copy of the weights less while it loads.

Use: split.py MODEL BODY WORDS"""
import sys

import onnx
from onnx import TensorProto, helper, numpy_helper

source, body, words = sys.argv[1:4]
model = onnx.load(source)
graph = model.graph
tensors = {t.name: t for t in graph.initializer}

rows = numpy_helper.to_array(tensors["word_embeddings_q"])
scales = numpy_helper.to_array(tensors["word_embeddings_s"])
assert rows.dtype == "int8" and scales.dtype == "float32" and len(rows) == len(scales)
with open(words, "wb") as file:
    file.write(rows.tobytes() + scales.astype("<f4").tobytes())

scaled = {n.output[0]: n for n in graph.node if n.name.startswith("m_") and n.output[0].endswith(".weight_t")}
nodes = []
for node in graph.node:
    if node.name in ("we_gq", "we_gs", "we_c", "we_m") or node.output[0] in scaled:
        continue
    for at, name in enumerate(node.input):
        if name == "t1_Gather":
            node.input[at] = "inputs_embeds"
        elif name == "input_ids":
            # Asked for its shape alone, which is the other's too.
            assert node.op_type == "Shape"
            node.input[at] = "token_type_ids"
    nodes.append(node)
    if node.op_type == "MatMul" and node.input[1] in scaled:
        scale = scaled.pop(node.input[1])
        node.input[1], product = scale.input[0], node.output[0]
        node.output[0] = product + "_unscaled"
        nodes.append(helper.make_node("Mul", [node.output[0], scale.input[1]], [product], name=scale.name))
assert not scaled
del graph.node[:]
graph.node.extend(nodes)
keep = [t for t in graph.initializer if not t.name.startswith("word_embeddings_")]
del graph.initializer[:]
graph.initializer.extend(keep)
inputs = [i for i in graph.input if i.name != "input_ids"]
del graph.input[:]
embeds = helper.make_tensor_value_info("inputs_embeds", TensorProto.FLOAT, ["batch", "seq", rows.shape[1]])
graph.input.extend([embeds, *inputs])
onnx.checker.check_model(model)
onnx.save(model, body)
