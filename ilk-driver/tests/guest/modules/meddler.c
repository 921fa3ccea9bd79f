// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/*
 * Overwrites the text while a batch waits for threads, as no well-behaved module does: the byte
 * after the int3 at `address`, as soon as the int3 is written. The byte is restored when the module
 * is unloaded.
 */
#include <linux/kprobes.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/mutex.h>

static unsigned long address;
module_param(address, ulong, 0);

static unsigned long (*meddler_lookup)(const char *name);
static void *(*meddler_poke)(void *address, const void *code, size_t length);
static void (*meddler_sync)(void);
static struct mutex *meddler_mutex;
static struct task_struct *meddler_thread;
static u8 meddler_old;
static bool meddler_done;

static void meddler_write(const u8 *byte)
{
	mutex_lock(meddler_mutex);
	meddler_poke((void *)address + 1, byte, 1);
	meddler_sync();
	mutex_unlock(meddler_mutex);
}

/* A nop is harmless: no thread executes the byte after an int3. */
static int meddler_wait(void *unused)
{
	static const u8 other = 0x90;

	while (!kthread_should_stop()) {
		if (!meddler_done && READ_ONCE(*(u8 *)address) == 0xcc) {
			meddler_old = *(u8 *)(address + 1);
			meddler_write(&other);
			meddler_done = true;
		}
		schedule_timeout_interruptible(1);
	}
	return 0;
}

static int __init meddler_init(void)
{
	struct kprobe probe = { .symbol_name = "kallsyms_lookup_name" };
	int err = register_kprobe(&probe);

	if (err)
		return err;
	meddler_lookup = (void *)probe.addr;
	unregister_kprobe(&probe);
	meddler_mutex = (void *)meddler_lookup("text_mutex");
	meddler_poke = (void *)meddler_lookup("text_poke");
	meddler_sync = (void *)meddler_lookup("text_poke_sync");
	if (!meddler_mutex || !meddler_poke || !meddler_sync)
		return -ENOENT;
	meddler_thread = kthread_run(meddler_wait, NULL, "meddler");
	return PTR_ERR_OR_ZERO(meddler_thread);
}

static void __exit meddler_exit(void)
{
	kthread_stop(meddler_thread);
	if (meddler_done)
		meddler_write(&meddler_old);
}

module_init(meddler_init);
module_exit(meddler_exit);
MODULE_DESCRIPTION("Disturbs a batch, for tests of ilk");
MODULE_LICENSE("Dual MIT/GPL");
