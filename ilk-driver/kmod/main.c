// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/*
 * ilk.ko: writes splices into the text of a running kernel for one owner at a time, and removes all
 * of them when the owner's file closes, for whatever reason. This file: the device /dev/ilk, whose
 * interface is ilk_abi.h.
 */
#include <linux/capability.h>
#include <linux/kdebug.h>
#include <linux/miscdevice.h>
#include <linux/security.h>
#include <asm/tsc.h>
#include <generated/utsrelease.h>

#include "ilk.h"

DEFINE_MUTEX(ilk_mutex);
static unsigned long ilk_open_bit;
static bool ilk_greeted;	/* the owner has sent the right version */

/*
 * A kernel locked down for integrity permits no writes to its memory. The rule for /dev/mem applies
 * here too, at load and at each open.
 */
static int ilk_locked_down(void)
{
	int err = security_locked_down(LOCKDOWN_DEV_MEM);

	if (err)
		pr_err("this kernel is locked down (see /sys/kernel/security/lockdown): no splice is permitted\n");
	return err;
}

static int ilk_open(struct inode *inode, struct file *file)
{
	int err;

	if (!capable(CAP_SYS_MODULE))
		return -EPERM;
	err = ilk_locked_down();
	if (err)
		return err;
	if (test_and_set_bit_lock(0, &ilk_open_bit))
		return -EBUSY;

	mutex_lock(&ilk_mutex);
	err = ilk_sites_clear();	/* splices that the last owner could not remove */
	ilk_ended = ILK_END_NONE;
	if (!err) {
		ilk_seen_end();
		ilk_arena_forget();
		ilk_stacks_forget();
		ilk_starve_begin();
		err = ilk_ring_alloc();
	}
	if (!err)
		err = ilk_clock_open();
	if (!err)
		ilk_ring_open();
	ilk_greeted = false;
	mutex_unlock(&ilk_mutex);
	if (err)
		clear_bit_unlock(0, &ilk_open_bit);
	return err;
}

static int ilk_release(struct inode *inode, struct file *file)
{
	mutex_lock(&ilk_mutex);
	if (!ilk_sites_clear())
		ilk_stacks_forget();
	ilk_tracepoints_off();
	ilk_clock_close();
	ilk_seen_end();
	ilk_arena_forget();
	mutex_unlock(&ilk_mutex);
	clear_bit_unlock(0, &ilk_open_bit);
	return 0;
}

/* The arrays of a request. No lock is held while they are copied: user memory may take forever. */
struct ilk_arrays {
	void *code;
	struct ilk_row *rows;
	struct ilk_fault *faults;
	struct ilk_poke *pokes;
	void *out;
	void __user *to;
	size_t out_size;
};

/* Returns a copy, NULL for no elements, or an error. */
static void *ilk_fetch_array(u64 from, size_t count, size_t size)
{
	return count ? ILK_TRY_USER(vmemdup_user(u64_to_user_ptr(from), count * size)) : NULL;
}

static int ilk_fetch_arena(const struct ilk_arena_write *arena, struct ilk_arrays *arrays)
{
	if (!arena->len || arena->len > ilk_arena_size || arena->row_count > arena->len ||
	    arena->fault_count > arena->len)
		return -EINVAL;
	arrays->code = ilk_fetch_array(arena->data, arena->len, 1);
	if (IS_ERR(arrays->code))
		return PTR_ERR(arrays->code);
	arrays->rows = ilk_fetch_array(arena->rows, arena->row_count, sizeof(*arrays->rows));
	if (IS_ERR(arrays->rows))
		return PTR_ERR(arrays->rows);
	arrays->faults = ilk_fetch_array(arena->faults, arena->fault_count,
					 sizeof(*arrays->faults));
	return PTR_ERR_OR_ZERO(arrays->faults);
}

static void ilk_free_array(void *array)
{
	if (!IS_ERR(array))
		kvfree(array);
}

static int ilk_answer(struct ilk_arrays *arrays, u64 to, size_t count, size_t size)
{
	arrays->out = ILK_TRY(kvcalloc(count, size, GFP_KERNEL));
	if (!arrays->out)
		return -ENOMEM;
	arrays->to = u64_to_user_ptr(to);
	arrays->out_size = count * size;
	return 0;
}

union ilk_request {
	struct ilk_arena_write arena;
	struct ilk_batch batch;
	struct ilk_bank bank;
	struct ilk_counters counters;
	struct ilk_losses losses;
	struct ilk_consume consume;
	struct ilk_rings rings;
	struct ilk_state state;
	struct ilk_tracepoint tracepoint;
	struct ilk_stacks stacks;
};

static int ilk_fetch(unsigned int command, const union ilk_request *in, struct ilk_arrays *arrays)
{
	int err;

	switch (command) {
	case ILK_IOC_ARENA:
		return ilk_fetch_arena(&in->arena, arrays);
	case ILK_IOC_BATCH:
		if (in->batch.count > ILK_MAX_POKES || in->batch.waits || in->batch.gone)
			return -EINVAL;
		arrays->pokes = ilk_fetch_array(in->batch.pokes, in->batch.count,
						sizeof(*arrays->pokes));
		return PTR_ERR_OR_ZERO(arrays->pokes);
	case ILK_IOC_COUNTERS:
		err = ilk_ring_counters_check(&in->counters);
		return err ? err : ilk_answer(arrays, in->counters.out,
					      (size_t)in->counters.count * nr_cpu_ids, sizeof(u64));
	case ILK_IOC_LOSSES:
		if (in->losses.reserved || in->losses.cpus != nr_cpu_ids)
			return -EINVAL;
		return ilk_answer(arrays, in->losses.out, nr_cpu_ids, sizeof(struct ilk_cpu_state));
	case ILK_IOC_STACKS:
		err = ilk_stacks_check(&in->stacks);
		if (err || !in->stacks.count)
			return err;
		return ilk_answer(arrays, in->stacks.out, in->stacks.count, sizeof(struct ilk_stack));
	default:
		return 0;
	}
}

static int ilk_state(struct ilk_state *state)
{
	if (state->begin > 1 || state->ended || state->tsc_unstable || state->reserved || state->tsc)
		return -EINVAL;
	if (state->begin && ilk_live_patching())
		return -EBUSY;
	state->ended = ilk_is_over() ? ilk_ended : ILK_END_NONE;
	state->tsc = state->ended ? ilk_ended_tsc : 0;
	state->tsc_unstable = check_tsc_unstable();
	if (state->begin)
		ilk_ended = ILK_END_NONE;
	return 0;
}

static int ilk_reset(void)
{
	int err = ilk_sites_clear();

	if (!err)
		ilk_ring_zero_tables();
	return err;
}

static int ilk_dispatch(unsigned int command, union ilk_request *in, struct ilk_arrays *arrays)
{
	switch (command) {
	case ILK_IOC_ARENA:
		return ilk_arena_write(&in->arena, arrays->code, arrays->rows, &arrays->faults);
	case ILK_IOC_BATCH:
		return ilk_batch_run(&in->batch, arrays->pokes);
	case ILK_IOC_BANK:
		return ilk_ring_bank(&in->bank);
	case ILK_IOC_COUNTERS:
		ilk_ring_counters(&in->counters, arrays->out);
		return 0;
	case ILK_IOC_LOSSES:
		ilk_ring_losses(arrays->out);
		return 0;
	case ILK_IOC_CONSUME:
		return ilk_ring_consume(&in->consume);
	case ILK_IOC_RINGS:
		return ilk_ring_rings(&in->rings);
	case ILK_IOC_STATE:
		return ilk_state(&in->state);
	case ILK_IOC_TRACEPOINT:
		return ilk_tracepoint_on(&in->tracepoint);
	case ILK_IOC_TRACEPOINTS_OFF:
		ilk_tracepoints_off();
		return 0;
	case ILK_IOC_STACKS:
		return ilk_stacks(&in->stacks, arrays->out);
	case ILK_IOC_RESET:
		return ilk_reset();
	default:
		return -ENOTTY;
	}
}

static int ilk_info(struct ilk_info __user *user)
{
	struct ilk_info info = { .abi = ILK_ABI_VERSION, .size = sizeof(info) };
	u32 abi;

	if (get_user(abi, &user->abi))
		return -EFAULT;
	if (abi != ILK_ABI_VERSION)
		return put_user(ILK_ABI_VERSION, &user->abi) ? -EFAULT : -EPROTO;

	if (mutex_lock_killable(&ilk_mutex))
		return -EINTR;
	info.arena = ilk_arena;
	info.arena_size = ilk_arena_size;
	info.unwinds = ilk_unwinds;
	info.faults = ilk_faults_most();
	info.modules = ilk_modules_gone;
	info.stacks = ilk_stacks_address();
	info.users = ilk_users_address();
	strscpy(info.release, UTS_RELEASE, sizeof(info.release));
	ilk_ring_describe(&info);
	ilk_clock_describe(&info);
	mutex_unlock(&ilk_mutex);
	if (copy_to_user(user, &info, sizeof(info)))
		return -EFAULT;
	WRITE_ONCE(ilk_greeted, true);
	return 0;
}

static long ilk_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	void __user *user = (void __user *)argument;
	struct ilk_arrays arrays = {};
	union ilk_request in;
	int err;

	if (command == ILK_IOC_INFO)
		return ilk_info(user);
	if (!READ_ONCE(ilk_greeted))
		return -EPROTO;
	if (_IOC_SIZE(command) > sizeof(in))
		return -ENOTTY;
	if (copy_from_user(&in, user, _IOC_SIZE(command)))
		return -EFAULT;

	ilk_starve_begin();
	err = ilk_fetch(command, &in, &arrays);
	if (!err && mutex_lock_killable(&ilk_mutex)) {
		err = -EINTR;
	} else if (!err) {
		err = ilk_dispatch(command, &in, &arrays);
		mutex_unlock(&ilk_mutex);
	}
	if (!err && _IOC_DIR(command) & _IOC_READ && copy_to_user(user, &in, _IOC_SIZE(command)))
		err = -EFAULT;
	if (!err && arrays.out && copy_to_user(arrays.to, arrays.out, arrays.out_size))
		err = -EFAULT;
	ilk_free_array(arrays.code);
	ilk_free_array(arrays.rows);
	ilk_free_array(arrays.faults);
	ilk_free_array(arrays.pokes);
	kvfree(arrays.out);
	return err;
}

static int ilk_mmap(struct file *file, struct vm_area_struct *vma)
{
	return READ_ONCE(ilk_greeted) ? ilk_ring_mmap(vma) : -EPROTO;
}

static const struct file_operations ilk_operations = {
	.owner = THIS_MODULE,
	.open = ilk_open,
	.release = ilk_release,
	.unlocked_ioctl = ilk_ioctl,
	.mmap = ilk_mmap,
	.poll = ilk_ring_poll,
};

static struct miscdevice ilk_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "ilk",
	.mode = 0600,
	.fops = &ilk_operations,
};

static int __init ilk_init(void)
{
	int err = ilk_locked_down();

	if (!err)
		err = ilk_symbols_resolve();
	if (!err)
		err = ilk_check_init();
	if (err)
		return err;
	err = ilk_arena_init();
	if (err)
		goto no_arena;
	err = ilk_ring_init();
	if (err)
		goto no_rings;
	err = ilk_starved() ? -ENOMEM : register_die_notifier(&ilk_die_block);
	if (err)
		goto no_sites;
	err = ilk_check_notifiers();
	if (err)
		goto no_modules;
	err = ilk_starved() ? -ENOMEM : register_module_notifier(&ilk_module_block);
	if (err)
		goto no_modules;
	err = ilk_end_init();
	if (err)
		goto no_end;
	err = ilk_starved() ? -ENOMEM : misc_register(&ilk_device);
	if (err)
		goto no_device;
	ilk_seen_init();
	return 0;

no_device:
	ilk_end_exit();
no_end:
	unregister_module_notifier(&ilk_module_block);
no_modules:
	unregister_die_notifier(&ilk_die_block);
no_sites:
	ilk_ring_exit();
no_rings:
	ilk_arena_exit();
no_arena:
	ilk_check_exit();
	return err;
}

/* No file is open and no splice is installed: either would pin the module. */
static void __exit ilk_exit(void)
{
	ilk_seen_exit();
	misc_deregister(&ilk_device);
	ilk_end_exit();
	unregister_module_notifier(&ilk_module_block);
	unregister_die_notifier(&ilk_die_block);
	ilk_arena_forget();
	ilk_stacks_forget();
	ilk_ring_exit();
	ilk_arena_exit();
	ilk_check_exit();
}

module_init(ilk_init);
module_exit(ilk_exit);
MODULE_DESCRIPTION("Splices in the text of a running kernel, for the GILK workbench");
MODULE_LICENSE("Dual MIT/GPL");
MODULE_VERSION(__stringify(ILK_ABI_VERSION));	/* /sys/module/ilk/version, which `ilk doctor` reads */
