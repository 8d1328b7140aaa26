// For builds of llama.cpp whose CPLUS_INCLUDE_PATH begins here: Vulkan's own header, with the part of
// VK_EXT_layer_settings that ggml names and older releases (Debian 12's 1.3.239) lack.
#pragma once
#include_next <vulkan/vulkan.hpp>
#ifndef VK_EXT_layer_settings
namespace VULKAN_HPP_NAMESPACE {
enum class LayerSettingTypeEXT { eBool32 = 0 };
struct LayerSettingEXT {
    const char *layer, *setting; LayerSettingTypeEXT type; uint32_t count; const void *values;
};
struct LayerSettingsCreateInfoEXT {
    VkStructureType type = static_cast<VkStructureType>(1000496000);
    const void *next = nullptr; uint32_t count; const LayerSettingEXT *settings;
    template <typename List> explicit LayerSettingsCreateInfoEXT(const List &list)
        : count(static_cast<uint32_t>(list.size())), settings(list.data()) {}
};
}
#endif
