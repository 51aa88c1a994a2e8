"""What is read off a traced graph: reads, writes, draws and where a tensor comes from, however deep in functions."""

import pytest
import tensorflow as tf

from tfdp.gradients.traced import KEPT, SECRET, Findings, Segment, digest, findings, outside_of

SEED = tf.TensorSpec([2], tf.int64)
NUMBER = tf.TensorSpec([], tf.float32)


def within_a_function(what):
    return tf.function(what, autograph=False)()


def within_a_branch(what):
    return tf.cond(tf.constant(1.0) * tf.random.stateless_uniform([], [0, 1]) > 0.5, what, lambda: tf.constant(0.0))


def within_a_loop(what):
    return tf.while_loop(lambda i, _: i < 3, lambda i, _: (i + 1, what()), [0, tf.constant(0.0)])[1]


def within_a_function_in_a_loop(what):
    return within_a_loop(lambda: within_a_function(what))


def within_a_switch(what):
    which = tf.cast(3 * tf.random.stateless_uniform([], [0, 1]), tf.int32)
    return tf.switch_case(which, [lambda: tf.constant(0.0), what, lambda: tf.constant(1.0)])


WITHIN = {
    "at once": lambda what: what(),
    "in a function": within_a_function,
    "in a branch": within_a_branch,
    "in a loop": within_a_loop,
    "in a function in a loop": within_a_function_in_a_loop,
    "in a switch": within_a_switch,
}


def read(what, *specs, secret: bool = False, kept=()) -> Findings:
    concrete = tf.function(what, autograph=False).get_concrete_function(*specs)
    graph = concrete.graph
    known = graph.inputs[: len(specs)] if secret else ()
    return findings(graph, graph.get_operations(), known, frozenset(id(v.handle) for v in kept), graph.outputs)


@pytest.mark.parametrize("where", WITHIN)
def test_a_read_is_seen(where: str):
    variable = tf.Variable(1.0)
    found = read(lambda: WITHIN[where](lambda: variable * 2.0))
    assert found.reads == {id(variable.handle)}
    assert not found.assigned and not found.refused


@pytest.mark.parametrize("where", WITHIN)
@pytest.mark.parametrize("how", ["assign", "assign_add", "scatter", "raw"])
def test_an_assignment_is_seen_with_its_variable(where: str, how: str):
    variable, other = tf.Variable([1.0]), tf.Variable([2.0])

    def write():
        if how == "scatter":
            variable.scatter_nd_update([[0]], [3.0])
        elif how == "raw":
            tf.raw_ops.AssignVariableOp(resource=variable.handle, value=[4.0])
        else:
            getattr(variable, how)([3.0])
        return other[0]

    found = read(lambda: WITHIN[where](write))
    assert {handle for handle, _ in found.assigned} == {id(variable.handle)}


@pytest.mark.parametrize("where", WITHIN)
def test_an_output_made_of_a_kept_variable_is_labelled(where: str):
    variable, other = tf.Variable(1.0), tf.Variable(1.0)

    def made(of):
        return read(lambda: WITHIN[where](lambda: tf.exp(of)), kept=[variable]).labels[0]

    assert made(variable) & KEPT
    assert not made(other) & KEPT


def test_a_kept_variable_that_chooses_a_branch_is_labelled():
    variable = tf.Variable(1.0)
    chosen = read(lambda: tf.cond(variable > 0, lambda: tf.constant(1.0), lambda: tf.constant(2.0)), kept=[variable])
    assert chosen.labels[0] & KEPT


def test_a_kept_variable_that_ends_a_loop_is_labelled():
    variable = tf.Variable(1.0)

    def count():
        return tf.while_loop(lambda i: i < variable, lambda i: i + 1.0, [tf.constant(0.0)])[0]

    assert read(count, kept=[variable]).labels[0] & KEPT


def test_what_a_loop_hands_on_round_after_round_is_labelled():
    """From the first variable of the loop to the last it takes as many rounds as there are variables."""
    variable = tf.Variable(1.0)

    def handed_on():
        state = [tf.constant(0)] + [tf.constant(0.0)] * 5
        return tf.while_loop(lambda i, *_: i < 9, lambda i, *s: (i + 1, variable * 1.0, *s[:-1]), state)[-1]

    assert read(handed_on, kept=[variable]).labels[0] & KEPT


@pytest.mark.parametrize("where", WITHIN)
def test_a_draw_says_whether_its_seed_is_secret(where: str):
    def draw(seed):
        return WITHIN[where](lambda: tf.random.stateless_normal([], seed))

    own = [d.secret for d in read(draw, SEED, secret=True).draws if "Normal" in d.place.kind]
    assert own and all(own)
    known = [d.secret for d in read(draw, SEED).draws]
    assert known and not any(known)


def test_a_seed_that_only_one_branch_takes_from_the_secret_is_not_secret():
    def draw(seed):
        seed = tf.cond(seed[0] > 0, lambda: seed, lambda: tf.constant([1, 2], tf.int64))
        return tf.random.stateless_normal([], seed)

    assert [d.secret for d in read(draw, SEED, secret=True).draws] == [False]


def test_a_seed_that_went_through_a_floating_point_number_is_not_secret():
    def draw(seed):
        return tf.random.stateless_normal([], tf.cast(tf.cast(seed, tf.float32), tf.int64))

    assert [d.secret for d in read(draw, SEED, secret=True).draws] == [False]


def test_two_draws_from_one_seed_are_known_as_such():
    def draws(seed):
        same = tf.random.stateless_normal([3], seed)[0] + tf.random.stateless_normal([4], tf.cast(seed, tf.int32))[0]
        return same + tf.random.stateless_normal([4], seed + tf.constant([0, 1], tf.int64))[0]

    first, second, other = read(draws, SEED, secret=True).draws
    assert first.seed == second.seed != other.seed
    assert first.what != second.what


def test_stateful_operations_are_named():
    queue = tf.queue.FIFOQueue(9, tf.float32)
    told = {
        "queue": lambda: queue.enqueue(1.0),
        "print": lambda: tf.print("a"),
        "python": lambda: tf.numpy_function(lambda a: a, [tf.constant(1.0)], tf.float32),
        "draw": lambda: tf.random.normal([]),
    }
    for name, what in told.items():
        for where in ("at once", "in a function", "in a branch", "in a loop"):
            found = read(lambda what=what, where=where: WITHIN[where](lambda: (what(), tf.constant(0.0))[1]))
            assert found.refused, (name, where)


def test_harmless_operations_are_not_refused():
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([1], [2]), 0)

    def harmless(x):
        tf.debugging.assert_positive(x)
        array = tf.TensorArray(tf.float32, 2).write(0, x).write(1, x)
        return array.stack()[0] + tf.cast(table.lookup(tf.constant(1)), tf.float32)

    assert not read(harmless, NUMBER).refused


def test_a_captured_tensor_is_known_for_what_it_is_outside():
    found = []

    @tf.function(autograph=False)
    def step(x):
        def inside():
            y = x + 1.0
            found.append((outside_of(y.op.inputs[0]), x))
            return y

        return tf.cond(x > 0, inside, lambda: x)

    step.get_concrete_function(NUMBER)
    assert found[0][0] is found[0][1]


def test_a_segment_names_what_it_was_not_given():
    @tf.function(autograph=False)
    def step(given, stranger):
        hidden = stranger * 2.0
        segment = Segment()
        tf.cond(given > 0, lambda: given * 3.0, lambda: given)
        assert not segment.strangers([given])
        tf.cond(given > 0, lambda: given * hidden, lambda: given)
        assert segment.strangers([given])

    step.get_concrete_function(NUMBER, NUMBER)


def test_a_digest_is_that_of_what_a_graph_does():
    variable = tf.Variable(2.0)

    def digest_of(what, name="f"):
        def f(x):
            with tf.name_scope(name):
                return what(x)

        return digest(tf.function(f, autograph=False).get_concrete_function(NUMBER).graph)

    def branches(constant):
        return lambda x: tf.cond(x > 0, lambda: x + constant, lambda: variable * x)

    assert digest_of(branches(1.0)) == digest_of(branches(1.0), "another")
    assert digest_of(branches(1.0)) != digest_of(branches(2.0))
    assert digest_of(tf.sin) != digest_of(tf.cos)


def test_a_digest_says_which_results_are_given_back():
    def digest_of(chosen):
        def f(x):
            both = tf.sin(x), tf.cos(x)
            return both[chosen]

        return digest(tf.function(f, autograph=False).get_concrete_function(NUMBER).graph)

    assert digest_of(0) != digest_of(1)


def test_the_labels_are_different_bits():
    assert SECRET & KEPT == 0
