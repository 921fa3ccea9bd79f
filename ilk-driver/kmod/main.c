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
#include <generated/utsrelease.h>

#include "ilk.h"

DEFINE_MUTEX(ilk_mutex);
static unsigned long ilk_open_bit;
static bool ilk_greeted;	/* the owner has sent the right version */

static unsigned int fail_alloc;
module_param(fail_alloc, uint, 0600);
MODULE_PARM_DESC(fail_alloc, "for tests: the number of the allocation of each request, and of the load, that fails (0: none)");
static unsigned int ilk_allocations;	/* of the current request */

bool ilk_starved(void)
{
	return unlikely(++ilk_allocations == READ_ONCE(fail_alloc));
}

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
	if (!err) {
		ilk_arena_forget();
		ilk_ring_open();
	}
	ilk_greeted = false;
	mutex_unlock(&ilk_mutex);
	if (err)
		clear_bit_unlock(0, &ilk_open_bit);
	return err;
}

static int ilk_release(struct inode *inode, struct file *file)
{
	mutex_lock(&ilk_mutex);
	ilk_sites_clear();
	ilk_arena_forget();
	mutex_unlock(&ilk_mutex);
	clear_bit_unlock(0, &ilk_open_bit);
	return 0;
}

static long ilk_info(struct ilk_info __user *user)
{
	struct ilk_info info = { .abi = ILK_ABI_VERSION, .size = sizeof(info) };
	u32 abi;

	if (get_user(abi, &user->abi))
		return -EFAULT;
	if (abi != ILK_ABI_VERSION)
		return put_user(ILK_ABI_VERSION, &user->abi) ? -EFAULT : -EPROTO;

	info.arena = ilk_arena;
	info.arena_size = ilk_arena_size;
	info.unwinds = ilk_unwinds;
	info.faults = ilk_faults_most();
	info.modules = READ_ONCE(ilk_modules_gone);
	strscpy(info.release, UTS_RELEASE, sizeof(info.release));
	ilk_ring_describe(&info);
	if (copy_to_user(user, &info, sizeof(info)))
		return -EFAULT;
	ilk_greeted = true;
	return 0;
}

/* Returns the error of a request, or copies its answer. */
static long ilk_answer(int err, const void *answer, size_t size, void __user *user)
{
	return err ? err : copy_to_user(user, answer, size) ? -EFAULT : 0;
}

static long ilk_reset(void)
{
	int err = ilk_sites_clear();

	if (!err)
		ilk_ring_zero_tables();
	return err;
}

static long ilk_dispatch(unsigned int command, void __user *user)
{
	union {
		struct ilk_arena_write arena;
		struct ilk_batch batch;
		struct ilk_bank bank;
		struct ilk_counters counters;
		struct ilk_losses losses;
		struct ilk_consume consume;
		struct ilk_rings rings;
	} in;

	if (command == ILK_IOC_INFO)
		return ilk_info(user);
	if (!ilk_greeted)
		return -EPROTO;
	if (_IOC_SIZE(command) > sizeof(in))
		return -ENOTTY;
	if (copy_from_user(&in, user, _IOC_SIZE(command)))
		return -EFAULT;

	switch (command) {
	case ILK_IOC_ARENA:
		return ilk_arena_write(&in.arena);
	case ILK_IOC_BATCH:
		return ilk_answer(ilk_batch_run(&in.batch), &in.batch, sizeof(in.batch), user);
	case ILK_IOC_BANK:
		return ilk_answer(ilk_ring_bank(&in.bank), &in.bank, sizeof(in.bank), user);
	case ILK_IOC_COUNTERS:
		return ilk_ring_counters(&in.counters);
	case ILK_IOC_LOSSES:
		return ilk_ring_losses(&in.losses);
	case ILK_IOC_CONSUME:
		return ilk_ring_consume(&in.consume);
	case ILK_IOC_RINGS:
		return ilk_ring_rings(&in.rings);
	case ILK_IOC_RESET:
		return ilk_reset();
	default:
		return -ENOTTY;
	}
}

static long ilk_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	long result;

	if (mutex_lock_killable(&ilk_mutex))
		return -EINTR;
	ilk_allocations = 0;
	result = ilk_dispatch(command, (void __user *)argument);
	mutex_unlock(&ilk_mutex);
	return result;
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
	err = ilk_starved() ? -ENOMEM : register_module_notifier(&ilk_module_block);
	if (err)
		goto no_modules;
	err = ilk_starved() ? -ENOMEM : misc_register(&ilk_device);
	if (err)
		goto no_device;
	return 0;

no_device:
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
	misc_deregister(&ilk_device);
	unregister_module_notifier(&ilk_module_block);
	unregister_die_notifier(&ilk_die_block);
	ilk_arena_forget();
	ilk_ring_exit();
	ilk_arena_exit();
	ilk_check_exit();
}

module_init(ilk_init);
module_exit(ilk_exit);
MODULE_DESCRIPTION("Splices in the text of a running kernel, for the GILK workbench");
MODULE_LICENSE("Dual MIT/GPL");
MODULE_VERSION(__stringify(ILK_ABI_VERSION));	/* /sys/module/ilk/version, which `ilk doctor` reads */
