"""The word embeddings out of the graph: their table by itself, `inputs_embeds` in their place."""

# Use: split.py MODEL BODY WORDS
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
nodes = [n for n in graph.node if n.name not in ("we_gq", "we_gs", "we_c", "we_m")]
for node in nodes:
    for at, name in enumerate(node.input):
        if name == "t1_Gather":
            node.input[at] = "inputs_embeds"
        elif name == "input_ids":
            # Asked for its shape alone, which is the other's too.
            assert node.op_type == "Shape"
            node.input[at] = "token_type_ids"
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
