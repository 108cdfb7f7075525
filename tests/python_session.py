"""The Python package on the demo model; tests/test_python.sh runs it in a virtual environment. usage: python_session.py DEMO_MODEL [NAME..]

Each function whose name begins with "check_" is a check; NAME runs those that have it in their name. The last line is "session: N passed, N failed".
On Windows too, where this was not run: threads are not counted there, and nothing forks. SUMI_TEST_LORA is an adapter of DEMO_MODEL, SUMI_TEST_EDIT_MODEL the demo edit model, SUMI_TEST_NET_MODEL and SUMI_TEST_NET a model and a control
net for it that takes control pictures and inpainting.
"""

import array
import asyncio
import gc
import glob
import logging
import os
import pickle
import subprocess
import sys
import threading
import time
import traceback
import warnings

import sumi

try:
    import numpy
except ImportError:
    numpy = None
DEMO = sys.argv[1]
SMALL = {"size": (32, 32), "steps": 2}
STILL = {"size": (256, 256), "steps": 400}  # a job that no test waits for
SEES_THREADS = sys.platform != "win32"  # pump_threads() does


class Engine(sumi.Engine):
    def __init__(self, **settings):
        super().__init__(sumi.Backend.CPU, **{"log": QUIET, "cpu_threads": 1, **settings})


QUIET = logging.getLogger("quiet")
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False


class Lines(logging.Handler):
    def __init__(self, act=None):
        super().__init__()
        self.lines, self.act = [], act

    def emit(self, record):
        self.lines.append((record.levelno, record.getMessage()))
        if self.act:
            self.act()


def logger_of(handler, level=logging.DEBUG):
    logger = logging.Logger("of a test", level)
    logger.addHandler(handler)
    return logger


def bytes_of(image):
    return memoryview(image.pixels).tobytes()


def raises(kind, result, text, function, *arguments, **settings):
    try:
        function(*arguments, **settings)
    except kind as error:
        assert result is None or error.result == result, error.result
        assert text in str(error), str(error)
        return error
    raise AssertionError(f"no {kind.__name__}: {text}")


def pump_threads():
    names = []
    for path in glob.glob("/proc/self/task/*/comm"):
        try:
            with open(path) as file:
                names.append(file.read().strip())
        except OSError:  # it ended meanwhile
            pass
    return names.count("sumi pump")


def until(condition, what):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.002)


# One engine for what does not change it.
engine = Engine()
model = engine.open_model(DEMO)
CAT = bytes_of(model.generate("a cat", seed=3, **SMALL)[0])


def check_the_package_is_the_one_that_was_installed():
    assert os.path.realpath(sumi.__file__).startswith(os.environ.get("SUMI_TEST_WHERE", "/")), sumi.__file__


def check_images_are_arrays():
    one, two = model.generate(["a cat", "a red moon"], seed=3, **SMALL)
    assert (one.width, one.height, one.seed, two.seed, one.step_count) == (32, 32, 3, 4, 2)
    assert bytes_of(one) == CAT and bytes_of(two) != CAT
    assert bytes_of(model.generate("a red moon", seed=4, **SMALL)[0]) == bytes_of(two)
    if numpy is None:
        return
    array = numpy.asarray(one)
    assert array.shape == (32, 32, 3) and array.dtype == numpy.uint8 and array is one.pixels
    opaque = model.generate("a cat", seed=3, format=sumi.Format.RGBA8, **SMALL)[0]
    assert not model.info.has_alpha and not opaque.has_alpha
    alpha = opaque.pixels
    assert alpha.shape == (32, 32, 4) and (alpha[..., :3] == array).all() and (alpha[..., 3] == 255).all()
    floats = model.generate("a cat", seed=3, format=sumi.Format.RGB32F, **SMALL)[0].pixels
    assert floats.dtype == numpy.float32 and abs(floats.clip(0, 1) * 255 - array).max() <= 1
    assert (numpy.from_dlpack(one) == array).all()


def check_settings_reach_the_library():
    for changed in ({"steps": 3}, {"guidance": 2.0}, {"solver": sumi.Solver.HEUN}, {"shift": 1.0}, {"sigmas": [1, 0.9, 0]}, {"noise": sumi.NoiseSource.TORCH_CUDA}):
        assert bytes_of(model.generate("a cat", seed=3, **{**SMALL, **changed})[0]) != CAT, changed
    guided = {**SMALL, "guidance": 2.0}
    plain = bytes_of(model.generate("a cat", **guided)[0])
    for changed in ({"negative": "a dog"}, {"guidance_begin": 0.5}, {"guidance_end": 0.1}, {"guidance_rule": sumi.GuidanceRule.NORM_LIMIT, "guidance_norm_limit": 0.5}):
        assert bytes_of(model.generate("a cat", **{**guided, **changed})[0]) != plain, changed
    assert model.generate("a cat", deadline=0.001, **{**SMALL, "steps": 30})[0].step_count < 30
    raises(sumi.CallerError, sumi.Result.INVALID_ARGUMENT, "step_cache", model.generate, "a cat", step_cache=77, **SMALL)
    many = {**SMALL, "steps": 12}
    kept, scheduled = (model.generate("a cat", **many, **cache)[0] for cache in ({"step_cache_db": 99}, {"step_cache_every": 3}))
    assert bytes_of(kept) == bytes_of(model.generate("a cat", **many)[0]) and kept.predicted_db == 99
    assert scheduled.reused_count == 6 and scheduled.predicted_db < 99
    assert model.info.family == "z-image" and model.sizes == [(256, 256)] and engine.info.backend == "cpu"
    assert model.memory(size=(32, 32)).arena < model.memory().arena
    more = {"transformer": DEMO + "/transformer", "vae": DEMO + "/vae", "tokenizer": DEMO + "/tokenizer", "text_encoder": DEMO + "/text_encoder"}
    with engine.open_model(**more) as parts:
        assert bytes_of(parts.generate("a cat", seed=3, **SMALL)[0]) == CAT
    expected = {"transformer": "transformer", "text_encoder": "text_encoder", "tokenizer": "tokenizer.json", "vae": "vae", "text_encoder_2": "text_encoder_2"}
    expected.update({"tokenizer_2": "tokenizer.json", "vision": "vision", "processor": "preprocessor_config.json"})
    for name, text in expected.items():
        assert text in str(raises(sumi.FileError, None, "/no/such", engine.open_model, DEMO, **{name: "/no/such"}))
    raises(sumi.CallerError, None, 'variant is "none"', engine.open_model, DEMO, variant="none")
    raises(sumi.CallerError, None, "text_weights", engine.open_model, DEMO, text_weights=sumi.WeightFormat.INT8)
    raises(sumi.CallerError, None, "weights: the CPU", engine.open_model, DEMO, weights=sumi.WeightFormat.INT8)
    raises(sumi.CallerError, None, "attention: the CPU", engine.open_model, DEMO, attention=sumi.AttentionFormat.EIGHT_BIT)
    with engine.open_model(DEMO, without_text_encoder=True, without_vae_encoder=True) as less:
        assert not less.info.has_text_encoder and not less.info.has_vae_encoder
    raises(sumi.CallerError, None, "cuda", Engine, device=0)
    raises(sumi.CallerError, None, "cuda", Engine, device_uuid=bytes(16))
    raises(ValueError, None, "8 bytes", Engine, device_luid=bytes(7))


def check_references_go_in():
    picture = memoryview(bytes(range(256)) * 12).cast("B", [32, 32, 3])
    with engine.open_model(os.environ["SUMI_TEST_EDIT_MODEL"]) as edits:
        assert edits.info.takes_references and edits.info.max_references >= 1
        one = {"steps": 1, "size": (32, 32), "guidance": edits.info.guidance_off}
        image = bytes_of(edits.generate("make it red", references=[picture], **one)[0])
        with edits.encode_prompt("make it red", [picture]) as prompt:
            assert prompt.reference_count == 1
            assert bytes_of(edits.generate(prompt, **one)[0]) == image
        assert bytes_of(edits.generate("make it red", **one)[0]) != image


def check_errors_have_the_librarys_sentence():
    error = raises(sumi.CallerError, sumi.Result.INVALID_ARGUMENT, "width is 100: give a multiple of 16", model.generate, "a cat", size=(100, 100))
    assert isinstance(error, ValueError) and error.sentence and pickle.loads(pickle.dumps(error)).result == error.result
    raises(sumi.CallerError, sumi.Result.NOT_SUPPORTED, "takes no reference images", model.generate, "a cat", references=[memoryview(bytes(48)).cast("B", [4, 4, 3])])
    raises(sumi.FileError, sumi.Result.FILE_NOT_FOUND, "/no/such: no such file", engine.open_model, "/no/such")
    raises(sumi.FileError, None, "/no/such", model.load_lora, "/no/such")
    raises(sumi.SumiError, None, "", model.load_prompt, b"nothing")
    raises(ValueError, None, "seeds", model.generate, ["a", "b"], seed=[1])
    raises(ValueError, None, "step_count is 4294967298", model.generate, "a", steps=2**32 + 2)
    raises(ValueError, None, "memory_budget_bytes is -1", Engine, memory_budget=-1)
    raises(ValueError, None, "out of range", engine.set_memory_budget, -1)
    raises(ValueError, None, "a seed is", model.generate, "a", seed=-1)
    raises(ValueError, None, "zero character", model.generate, "a\0b")
    raises(TypeError, None, "not int", model.generate, "a", image=7)
    raises(TypeError, None, "uint8", model.generate, "a", image=memoryview(bytes(16)).cast("f", [2, 2]))
    raises(sumi.CallerError, None, "", Engine, job_capacity=-1)
    with Engine(memory_budget=1 << 16) as small:
        with small.open_model(DEMO) as its:
            raises(sumi.OutOfMemoryError, sumi.Result.BUDGET_TOO_SMALL, "", its.generate, "a cat", **SMALL)
            small.set_memory_budget(0)
            assert bytes_of(its.generate("a cat", seed=3, **SMALL)[0]) == CAT


def check_the_log_arrives():
    handler = Lines()
    with Engine(log=logger_of(handler)) as told:
        told.open_model(DEMO)
        raises(sumi.FileError, None, "", told.open_model, "/no/such")
    assert any(level == logging.INFO and "opened z-image" in text for level, text in handler.lines), handler.lines
    assert any(level == logging.ERROR and "/no/such" in text for level, text in handler.lines), handler.lines
    handler = Lines()
    with Engine(log=logger_of(handler, logging.ERROR)) as told:
        told.open_model(DEMO)
    assert handler.lines == []


def check_a_log_handler_may_poll_and_nothing_else():
    found = []

    def act():
        if "job" in shared:
            job = shared["job"]
            found.append(job.poll().state)
            for call in (job.wait, lambda: shared["model"].submit("a"), shared["engine"].close):
                try:
                    call()
                    found.append("it was not refused")
                except sumi.CallerError as error:
                    found.append(error.result)

    shared = {}
    with Engine(log=logger_of(Lines(act))) as told:
        shared.update(engine=told, model=told.open_model(DEMO))
        shared["job"] = shared["model"].submit("a " * 2000, **SMALL)  # its prompt is cut, which the thread's log is told
        shared["job"].wait(20)
        raises(sumi.CallerError, None, "width", shared["model"].generate, "a", size=(1, 1))  # and this thread's
        shared.pop("job")
    refused = [one for one in found if not isinstance(one, sumi.JobState)]
    assert len(found) >= 8 and set(refused) == {sumi.Result.WRONG_STATE}, found


def check_jobs_can_be_awaited_with_previews():
    async def session():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                await asyncio.sleep(0.001)
                ticks += 1

        ticker = asyncio.ensure_future(tick())
        opened = await engine.submit_model(DEMO)
        job = opened.submit("a cat", seed=3, preview_every=1, size=(96, 96), steps=6)
        versions = []
        async for preview in job.previews():
            versions.append(preview.version)
            assert (preview.width, preview.height) == (12, 12) and len(memoryview(preview.pixels).tobytes()) == 12 * 12 * 4
        images, other = await asyncio.gather(job, opened.submit("a cat", seed=3, **SMALL))
        assert await job is images and bytes_of(other[0]) == CAT
        assert versions == sorted(set(versions)) and len(versions) >= 2, versions
        before = ticks
        await opened.submit("a cat", size=(96, 96), steps=6)
        assert ticks >= before + 5, (before, ticks)
        ticker.cancel()
        opened.close()
        return images[0]

    image = asyncio.run(session())
    assert bytes_of(image) == bytes_of(model.generate("a cat", seed=3, size=(96, 96), steps=6)[0])


def check_a_cancelled_task_cancels_its_job():
    async def session():
        job = model.submit("a cat", **STILL)
        task = asyncio.ensure_future(job._result())
        await asyncio.sleep(0.02)
        task.cancel()
        try:
            await task
            raise AssertionError("the task was not cancelled")
        except asyncio.CancelledError:
            pass
        try:
            await job
            raise AssertionError("the job was not cancelled")
        except sumi.Cancelled as error:
            assert error.result == sumi.Result.CANCELLED
        assert job.poll().state == sumi.JobState.CANCELLED

    asyncio.run(session())


def check_jobs_are_paused_cancelled_and_discarded():
    first, job = model.submit("a dog", **STILL), model.submit("a cat", seed=3, **SMALL)
    job.pause()
    first.cancel()
    raises(sumi.Cancelled, None, "", first.result, 20)
    raises(TimeoutError, sumi.Result.TIMEOUT, "", job.result, 0.05)
    assert job.poll().paused
    job.resume()
    assert bytes_of(job.result(20)[0]) == CAT and job.progress == 1 and job.done
    assert job.result() is job.result() and job.poll().state == sumi.JobState.DONE and job.preview() is None
    running, waiting = model.submit("a cat", **STILL), model.submit("a dog", **STILL)
    waiting.set_priority(-3)
    running.cancel()
    raises(sumi.Cancelled, None, "", running.result, 20)
    waiting.discard()
    waiting.cancel()
    raises(sumi.Cancelled, None, "discarded", waiting.result)
    del running, waiting
    until(lambda: engine.job_count == 0, "jobs are left")


def check_dropped_objects_are_freed():
    lora = sumi_lora()
    prompt, dropped = model.encode_prompt("a cat"), model.submit("a dog", loras=[lora], **STILL)
    assert engine.job_count == 1
    del prompt, dropped, lora
    gc.collect()
    until(lambda: (model.info, engine.job_count)[1] == 0, "the job is there still")
    before = engine.info.host_bytes
    for _ in range(3):
        model.encode_prompt("a cat")
        sumi_lora()
        engine.open_model(DEMO)
    gc.collect()
    until(lambda: (model.info, engine.info.host_bytes)[1] <= before + 200000, f"{engine.info.host_bytes} bytes, {before} before")


def sumi_lora():
    return model.load_lora(os.environ["SUMI_TEST_LORA"])


def check_control_nets():
    stripes = memoryview((bytes(24) + bytes([255]) * 24) * 32).cast("B", [32, 16, 3])
    grey = memoryview(bytes([128]) * 1024).cast("B", [32, 32])
    with engine.open_model(os.environ["SUMI_TEST_NET_MODEL"]) as controlled, controlled.load_control(os.environ["SUMI_TEST_NET"]) as net:
        info = net.info
        assert info.kind == "z-fun-2.1" and info.takes_picture and info.takes_inpainting and 0.5 < info.strength <= 1 and info.weight_bytes > 0

        def drawn(prompts, *uses):
            one = {"steps": 2, "size": (32, 32), "guidance": controlled.info.guidance_off, "seed": [3] * len(prompts)}
            return [bytes_of(image) for image in controlled.generate(prompts, controls=uses, **one)]

        plain = drawn(["a cat"])[0]
        usual = drawn(["a cat"], sumi.ControlUse(net, stripes))[0]
        assert usual == drawn(["a cat"], sumi.ControlUse(net, stripes, strength=info.strength))[0] != plain
        assert drawn(["a cat"], sumi.ControlUse(net, stripes, strength=0))[0] == plain
        early = drawn(["a cat"], sumi.ControlUse(net, stripes, end=0.5))[0]
        late = drawn(["a cat"], sumi.ControlUse(net, stripes, start=0.5))[0]
        assert len({plain, usual, early, late}) == 4
        painted = drawn(["a cat"], sumi.ControlUse(net, stripes, inpaint=stripes, mask=grey))[0]
        assert painted not in (plain, usual)
        assert drawn(["a cat"], sumi.ControlUse(net, stripes), sumi.ControlUse(net, grey))[0] not in (plain, usual)
        both = drawn(["a cat", "a cat"], sumi.ControlUse(net, [stripes, grey]))
        assert both == [usual, drawn(["a cat"], sumi.ControlUse(net, grey))[0]]
        distances = array.array("f", [1.0 + x * 7 for x in range(32)] * 32)  # greys from 255 to 38
        greys = memoryview(bytes(256 - int(each) for each in distances)).cast("B", [32, 32])
        wanted = drawn(["a cat"], sumi.ControlUse(net, greys))[0]
        given = {"kind": sumi.DepthKind.DISTANCE, "low": 1, "high": 256}
        for depth in (sumi.Depth(distances, size=(32, 32), **given), sumi.Depth(memoryview(distances).cast("B").cast("f", [32, 32]), bottom_up=True, **given)):
            assert drawn(["a cat"], sumi.ControlUse(net, depth))[0] == wanted not in (plain, usual)
        seen = controlled.submit("a cat", controls=[sumi.ControlUse(net, sumi.Depth(distances, size=(32, 32), **given))], steps=1, size=(32, 32))
        seen.wait()
        assert memoryview(seen.control_picture()).tobytes() == b"".join(bytes([256 - int(each)] * 3) for each in distances)
        raises(sumi.CallerError, sumi.Result.INVALID_ARGUMENT, "", seen.control_picture, control=1)
        seen.discard()
        if numpy is not None:
            turned = numpy.frombuffer(distances, "float32").reshape(32, 32).astype("uint16")[:, ::-1]
            twice = sumi.Depth(turned[:, ::-1], far=65535, **given)  # both have strides of their own
            assert drawn(["a cat", "a cat"], sumi.ControlUse(net, [twice, greys])) == [wanted, wanted]
        for wrong, text in ((sumi.Depth(distances, **given), "needs size"), (sumi.Depth(distances, size=(32, 31), **given), "32 x 31")):
            raises(ValueError, None, text, drawn, ["a cat"], sumi.ControlUse(net, wrong))
        for wrong in (sumi.Depth([1.0], size=(1, 1)), sumi.Depth(array.array("d", [1.0]), size=(1, 1))):
            raises(TypeError, None, "a depth buffer is", drawn, ["a cat"], sumi.ControlUse(net, wrong))
        raises(sumi.CallerError, sumi.Result.INVALID_ARGUMENT, "near_plane", drawn, ["a cat"], sumi.ControlUse(net, sumi.Depth(distances, size=(32, 32))))
        raises(sumi.CallerError, sumi.Result.INVALID_ARGUMENT, "picture_count is 2", drawn, ["a cat"], sumi.ControlUse(net, [stripes, grey]))
        raises(ValueError, None, "has 2 pictures", drawn, ["a cat"], sumi.ControlUse(net, [stripes, grey], inpaint=[grey] * 3, mask=grey))
        raises(sumi.CallerError, sumi.Result.INVALID_ARGUMENT, "give both", drawn, ["a cat"], sumi.ControlUse(net, stripes, mask=grey))
        raises(sumi.FileError, None, "/no/such", controlled.load_control, "/no/such")
        kept = controlled.submit("a cat", controls=[sumi.ControlUse(controlled.load_control(os.environ["SUMI_TEST_NET"]), grey)], steps=2, size=(32, 32))
        gc.collect()
        assert len(kept.result()) == 1  # the job kept its net
    raises(sumi.CallerError, sumi.Result.STALE_HANDLE, "the control net is closed", model.generate, "a cat", controls=[sumi.ControlUse(net, grey)], **SMALL)


def check_adapters_and_encoded_prompts():
    with sumi_lora() as lora:
        assert bytes_of(model.generate("a cat", seed=3, loras=[(lora, 0.0)], **SMALL)[0]) == CAT
        changed = bytes_of(model.generate("a cat", seed=3, loras=[lora], **SMALL)[0])
        assert changed != CAT and changed == bytes_of(model.generate("a cat", seed=3, loras=[(lora, 1.0)], **SMALL)[0])
    raises(sumi.CallerError, sumi.Result.STALE_HANDLE, "the lora is closed", model.generate, "a cat", loras=[lora], **SMALL)
    with model.encode_prompt("a cat") as prompt:
        data = prompt.save()
        smaller = [prompt.save(format) for format in (sumi.PromptFormat.BF16, sumi.PromptFormat.INT8)]
        assert len(data) > len(smaller[0]) > len(smaller[1]) > 0 and data == prompt.save(sumi.PromptFormat.F32)
        assert prompt.reference_count == 0
        if numpy is not None:
            assert prompt.features[0].ndim == 2 and prompt.features[0].any()
    again = model.load_prompt(data)
    images = model.generate([again, again], seed=[3, 4], **SMALL)
    assert bytes_of(images[0]) == CAT and bytes_of(images[1]) != CAT
    for data in smaller:
        near = bytes_of(model.generate(model.load_prompt(data), seed=3, **SMALL)[0])
        assert max(abs(a - b) for a, b in zip(near, CAT)) < 16
    assert bytes_of(model.generate("a cat", negative=again, seed=3, guidance=2.0, **SMALL)[0]) == bytes_of(model.generate("a cat", negative="a cat", seed=3, guidance=2.0, **SMALL)[0])


def check_pictures_and_masks_go_in():
    if numpy is None:
        return
    start = numpy.random.default_rng(1).integers(0, 256, (32, 32, 3), "uint8")
    mask = numpy.zeros((32, 32), bool)
    mask[:, 16:] = True
    painted = model.generate("a cat", image=start, mask=mask, **SMALL)[0].pixels
    assert (painted[:, :16] == start[:, :16]).all() and (painted[:, 16:] != start[:, 16:]).any()
    assert (model.generate("a cat", image=start, mask=mask * numpy.uint8(255), strength=1.0, **SMALL)[0].pixels == painted).all()
    assert (model.generate("a cat", image=start, mask=mask, mask_feather=4, **SMALL)[0].pixels != painted).any()
    wide = numpy.zeros((32, 64, 3), "uint8")
    wide[:, ::2] = start
    assert (model.generate("a cat", image=wide[:, ::2], mask=mask, **SMALL)[0].pixels == painted).all()
    latents = model.encode_image(start, (32, 32))
    assert latents.shape == (16, 4, 4) and latents.any()
    job = model.submit("a cat", latents=latents, strength=0.5, **SMALL)
    job.wait()
    final = job.latents()
    assert final.shape == (16, 4, 4) and (final != latents).any() and bytes_of(job.result()[0]) != CAT
    noise = numpy.random.default_rng(1).standard_normal((16, 4, 4), "float32")
    assert bytes_of(model.generate("a cat", noise_values=noise, **SMALL)[0]) != CAT
    raises(ValueError, None, "latents are 256 values", model.generate, "a cat", latents=latents[:3], **SMALL)


class OnDevice:
    """As CuPy and PyTorch show a tensor."""

    def __init__(self, shape=(32, 32, 3), kind="|u1", strides=None, read_only=False):
        self.__cuda_array_interface__ = {"shape": shape, "typestr": kind, "data": (4096, read_only), "strides": strides, "version": 3}


def check_tensors_of_a_gpu_are_checked():
    def draw(tensor):
        return model.generate("a cat", into=[tensor], **SMALL)

    raises(sumi.CallerError, sumi.Result.NOT_SUPPORTED, "device_address", draw, OnDevice())
    raises(sumi.CallerError, sumi.Result.NOT_SUPPORTED, "device_address", draw, OnDevice(strides=(256, 3, 1)))
    raises(ValueError, None, "uint8 [32, 32, 3]", draw, OnDevice((32, 32, 4)))
    raises(ValueError, None, "float32", draw, OnDevice(kind="<f4"))
    raises(ValueError, None, "gaps", draw, OnDevice(strides=(256, 4, 1)))
    raises(ValueError, None, "read-only", draw, OnDevice(read_only=True))
    raises(TypeError, None, "neither", draw, 7)
    raises(ValueError, None, "1 images have 0 tensors", model.generate, "a cat", into=[], **SMALL)
    if numpy is not None:
        raises(TypeError, None, "not on a CUDA device", draw, numpy.zeros((32, 32, 3), "uint8"))


def check_two_engines_and_many_threads():
    found = {}
    with Engine() as other, other.open_model(DEMO) as its:
        def draw(key, by):
            try:
                found[key] = bytes_of(by.generate("a cat", seed=3, **SMALL)[0])
            except Exception as error:  # shown below
                found[key] = error

        threads = [threading.Thread(target=draw, args=(i, (model, its)[i % 2])) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert [found.get(i) == CAT for i in range(6)] == [True] * 6, found


def check_an_engine_without_a_thread():
    before = pump_threads()
    with Engine(pump=sumi.Pump.UPDATE, cpu_threads=1, max_slice_us=1000) as pumped:
        assert pump_threads() == before
        with pumped.submit_model(DEMO).result() as its:
            assert bytes_of(its.generate("a cat", seed=3, **SMALL)[0]) == CAT
            job = its.submit("a cat", seed=3, **SMALL)
            while not job.done:
                pumped.update(0.004)
            assert bytes_of(job.result()[0]) == CAT
            assert bytes_of(asyncio.run(awaited(its.submit("a cat", seed=3, **SMALL)))[0]) == CAT


async def awaited(job):
    return await job


def check_an_engine_ends_with_its_jobs_and_thread():
    before = pump_threads()
    ended = Engine()
    its = ended.open_model(DEMO)
    assert pump_threads() == before + 1 or not SEES_THREADS
    job = its.submit("a cat", **STILL)
    waiter = []
    thread = threading.Thread(target=lambda: waiter.append(raises(sumi.CallerError, None, "the engine is closed", job.wait)))
    thread.start()
    until(lambda: job.poll().state == sumi.JobState.RUNNING, "the job does not run")
    ended.close()
    ended.close()
    thread.join(20)
    assert len(waiter) == 1 and pump_threads() == before and ended.closed
    for call in (job.result, job.poll, job.cancel, lambda: its.info, lambda: its.submit("a"), lambda: ended.info, lambda: ended.update(0)):
        raises(sumi.CallerError, sumi.Result.STALE_HANDLE, "the engine is closed", call)
    its.close()
    del job, its, ended
    dropped = Engine()
    its = dropped.open_model(DEMO)
    del dropped, its
    gc.collect()
    assert pump_threads() == before


def check_a_closed_model_cancels_its_jobs():
    its = engine.open_model(DEMO)
    job = its.submit("a cat", **STILL)
    its.close()
    its.close()
    raises(sumi.Cancelled, None, "", job.result, 20)
    raises(sumi.CallerError, sumi.Result.STALE_HANDLE, "the model is closed", its.generate, "a cat")


FREE = "sumi_job_poll sumi_job_cancel sumi_job_preview sumi_job_pause sumi_job_set_priority sumi_job_list sumi_engine_get_info".split()


class Watched:
    """The library with a count of the threads that are in its calls, free ones apart."""

    def __init__(self, library):
        self.library, self.inside, self.most, self.lock = library, 0, 0, threading.Lock()

    def __getattr__(self, name):
        function = getattr(self.library, name)
        if name in FREE:
            return function

        def call(*arguments):
            with self.lock:
                self.inside += 1
                self.most = max(self.most, self.inside)
            time.sleep(0.001)
            try:
                return function(*arguments)
            finally:
                with self.lock:
                    self.inside -= 1

        return call


def check_only_one_thread_is_inside_an_engine():
    watched = Watched(sumi._library.library)
    sumi._engine.library = sumi._model.library = watched
    try:
        def draw():
            with model.encode_prompt("a cat") as prompt:
                assert bytes_of(model.generate(prompt, seed=3, **SMALL)[0]) == CAT
            model.submit("a dog", **STILL).discard()
            done.append(1)

        done = []
        threads = [threading.Thread(target=draw) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    finally:
        sumi._engine.library = sumi._model.library = watched.library
    assert len(done) == 4 and watched.most == 1, (len(done), watched.most)


PROGRAM = """
import atexit, glob, logging, sys
def show_pumps():
    if "sumi pump\\n" in [open(path).read() for path in glob.glob("/proc/self/task/*/comm")]:
        sys.stderr.write("the engine's thread is there after the end")
atexit.register(show_pumps) # before sumi's, so after it
sys.modules["numpy"] = None
import sumi
logging.basicConfig(level=logging.DEBUG, handlers=[logging.NullHandler()])
engine = sumi.Engine(sumi.Backend.CPU)
model = engine.open_model(sys.argv[1])
image = model.generate("a cat", seed=3, size=(32, 32), steps=2)[0]
assert type(image.pixels) is bytearray and len(image.png()) > 100
sys.stdout.write(bytes(image.pixels).hex())
jobs = [model.submit("a cat", size=(256, 256), steps=400) for _ in range(2)]
"""


def check_a_program_may_end_while_jobs_run_and_needs_no_numpy():
    ended = subprocess.run([sys.executable, "-c", PROGRAM, DEMO], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, b""), ended
    assert bytes.fromhex(ended.stdout.decode()) == CAT


def check_a_forked_child_has_no_engine():
    if not hasattr(os, "fork"):
        return
    job = model.submit("a cat", seed=3, **SMALL)
    warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of threads: sumi's are not in the child, and its engine knows
    child = os.fork()
    if child == 0:
        try:
            raises(sumi.CallerError, None, "the engine is closed", job.poll)
            raises(sumi.CallerError, None, "the engine is closed", model.generate, "a")
            engine.close()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert bytes_of(job.result()[0]) == CAT


def main():
    passed = failed = 0
    for name, check in list(globals().items()):
        if not name.startswith("check_") or (sys.argv[2:] and not any(part in name for part in sys.argv[2:])):
            continue
        begin = time.process_time()
        try:
            check()
            passed += 1
        except Exception:
            failed += 1
            print(f"FAILED: {name}\n{traceback.format_exc()}")
        if os.environ.get("SUMI_TEST_TIMES"):
            print(f"{time.process_time() - begin:.2f} {name}")
    if numpy is None:
        print("without NumPy")
    print(f"session: {passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
