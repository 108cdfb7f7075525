// An engine with the CUDA backend on the fake driver (fake_cuda.h, which each test includes itself because the build
// looks for that), and what must be true when it is destroyed.
#ifndef CUDA_FIXTURE_H
#define CUDA_FIXTURE_H
#include "engine_fixture.h"
#ifdef SUMI_HAS_CUDA // else the fake driver is not built
#include "fake_cuda.h"

static inline sumi_engine_desc cuda_desc(void)
{
    memset(&s_host, 0, sizeof s_host);
    sumi_engine_desc desc = host_desc(&s_host);
    desc.backend = SUMI_BACKEND_CUDA;
    return desc;
}

static inline sumi_engine* cuda_engine_with(sumi_pump pump, uint32_t slice_us, sumi_model** out_model)
{
    sumi_engine_desc desc = cuda_desc();
    desc.max_slice_us = slice_us;
    desc.pump = pump;
    sumi_engine* engine = open_engine(&desc, out_model);
    CHECK(engine != NULL);
    return engine;
}
static inline sumi_engine* cuda_engine(uint32_t slice_us, sumi_model** out_model)
{
    return cuda_engine_with(SUMI_PUMP_UPDATE, slice_us, out_model);
}

// Checks that everything was released, no rule of the driver was broken, and the caller's context is what it was.
static inline void close_cuda(sumi_engine* engine)
{
    close_engine(engine);
    CHECK_NUMBER(fake_held(), 0);
    CHECK_NUMBER(fake_violations(), 0);
    CHECK_NUMBER(fake_context_depth(), 0);
}

// Runs a job to its end. A job that does not end is a failure, and the program does not hang.
static inline sumi_result run_to_end(sumi_engine* engine, sumi_job job)
{
    CHECK_NUMBER(sumi_job_wait(engine, job, 20000), SUMI_OK);
    return sumi_job_poll(engine, job).result;
}

// A desc of the smallest image.
static inline sumi_image_desc quick_image(sumi_model* model)
{
    sumi_image_desc desc = small_image(model, &s_item);
    desc.width = desc.height = 16;
    return desc;
}

// Makes some updates with the smallest budget. False if the job has ended.
static inline bool run_updates(sumi_engine* engine, sumi_job job, int count)
{
    for (int i = 0; i < count; i++) sumi_engine_update(engine, 1);
    return sumi_job_poll(engine, job).state < SUMI_JOB_DONE;
}
#endif
#endif
