// A stand-in for tt-metal's classes, as far as libmemoir-tt.so and the test program look at them: the same
// names, signatures and visibility, none of the work. STANDIN_FORM chooses how Buffer is built:
//   0  as today: inline getters (hidden), members behind the weak pointer of enable_shared_from_this
//   1  getters in the library (exported), members elsewhere
//   2  a form that nothing knows: inline getters, members elsewhere
//   3  as 0, but num_cores(), collect_kernel_meta() and MeshDevice::get_devices() are inline: not exported
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#ifndef STANDIN_FORM
#define STANDIN_FORM 0
#endif

namespace tt::tt_metal {

class IDevice;

struct CoreCoord {
    std::size_t x = 0, y = 0;
};

class CoreRangeSet {
  public:
    explicit CoreRangeSet(std::uint32_t cores) : cores_(cores) {}
#if STANDIN_FORM == 3
    std::uint32_t num_cores() const { return cores_; }
#else
    std::uint32_t num_cores() const;
#endif

  private:
    std::uint32_t cores_;
};

enum class BufferType { DRAM, L1, SYSTEM_MEMORY, L1_SMALL, TRACE };

class Buffer final : public std::enable_shared_from_this<Buffer> {
  public:
    Buffer(IDevice *device, std::uint64_t size, std::uint64_t page_size, BufferType type, bool hooked);
    ~Buffer();
    static std::shared_ptr<Buffer> create(IDevice *device, std::uint64_t size, std::uint64_t page_size,
                                          BufferType type, bool hooked);

#if STANDIN_FORM == 1
    IDevice *device() const;
    std::uint64_t size() const;
    BufferType buffer_type() const;
#else
    IDevice *device() const { return device_; }
    std::uint64_t size() const { return size_; }
    BufferType buffer_type() const { return type_; }
#endif
    std::uint32_t address() const;
    std::uint64_t page_size() const;
    std::uint32_t num_pages() const;
    bool is_dram() const;
    bool is_l1() const;

  private:
#if STANDIN_FORM == 1 || STANDIN_FORM == 2
    std::uint64_t elsewhere_[4] = {0x1111, 0x2222, 0x3333, 0x4444};
#endif
    IDevice *const device_;
    const std::uint64_t size_;
    const BufferType type_;
    std::uint64_t page_size_;
    std::uint64_t address_;
    bool allocated_ = false;
};

class IDevice {
  public:
    virtual ~IDevice() = default;
    virtual int arch() const = 0;
    virtual int id() const = 0;
    virtual int build_id() const = 0;
    virtual int num_dram_channels() const = 0;
    virtual std::uint32_t l1_size_per_core() const = 0;
    virtual std::uint32_t dram_size_per_channel() const = 0;
    virtual CoreCoord compute_with_storage_grid_size() const = 0;
};

class Device : public IDevice {
  public:
    explicit Device(int id) : id_(id) {}
    ~Device() override;
    int arch() const override;
    int id() const override { return id_; } // inline, as there: not exported
    int build_id() const override { return id_; }
    int num_dram_channels() const override;
    std::uint32_t l1_size_per_core() const override;
    std::uint32_t dram_size_per_channel() const override;
    CoreCoord compute_with_storage_grid_size() const override;

  private:
    std::uint64_t before_[3] = {};
    int id_;
};

namespace distributed {
class MeshDevice : public IDevice, public std::enable_shared_from_this<MeshDevice> {
  public:
    explicit MeshDevice(std::vector<IDevice *> devices);
    ~MeshDevice() override;
    int arch() const override;
    int id() const override;
    int build_id() const override;
    int num_dram_channels() const override;
    std::uint32_t l1_size_per_core() const override;
    std::uint32_t dram_size_per_channel() const override;
    CoreCoord compute_with_storage_grid_size() const override;
#if STANDIN_FORM == 3
    std::vector<IDevice *> get_devices() const { return devices_; }
#else
    std::vector<IDevice *> get_devices() const;
#endif

  private:
    std::vector<IDevice *> devices_;
    int id_;
};
} // namespace distributed

class GraphTracker {
  public:
    static GraphTracker &instance();
    void track_allocate(const Buffer *buffer);
    void track_deallocate(Buffer *buffer);
    void track_allocate_cb(const CoreRangeSet &cores, std::uint64_t address, std::uint64_t size,
                           bool globally_allocated, const IDevice *device);
    void track_deallocate_cb(const IDevice *device);

    // What the real ones saw, for the test to compare.
    std::atomic<std::uint64_t> allocated{0}, freed{0}, cbs{0}, cb_frees{0}, compiled{0}, destroyed{0};
    std::atomic<bool> throws{false};
};

namespace detail {
class ProgramImpl;

struct KernelBinaryMeta {
    std::uint32_t processor_type;
    std::size_t packed_size;
};

struct KernelMeta {
    std::string_view name, source;
    std::uint8_t processor_class = 0;
    int programmable_core_type = 0;
    std::optional<std::uint8_t> math_fidelity;
    std::vector<KernelBinaryMeta> binary_meta;
};

class ProgramImpl {
  public:
    ProgramImpl(std::vector<std::size_t> kernels, std::vector<std::uint64_t> cbs, std::uint64_t base,
                std::uint32_t cores);
    ~ProgramImpl() noexcept;
    void compile(IDevice *device, bool force_slow_dispatch = false);
    void allocate_circular_buffers(const IDevice *device);
    void deallocate_circular_buffers();
    std::size_t num_kernels() const;
#if STANDIN_FORM == 3
    std::vector<KernelMeta> collect_kernel_meta(IDevice *) const { return {}; }
#else
    std::vector<KernelMeta> collect_kernel_meta(IDevice *device) const;
#endif

  private:
    std::vector<std::size_t> kernels_;
    std::vector<std::uint64_t> cbs_;
    std::uint64_t base_;
    CoreRangeSet cores_;
    std::vector<const IDevice *> cb_devices_;
};
} // namespace detail

class Inspector {
  public:
    static void program_destroyed(const detail::ProgramImpl *program) noexcept;
};

} // namespace tt::tt_metal
