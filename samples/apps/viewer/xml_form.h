// A prompt in XML as a form: what its fields hold, and the text that they make.
#ifndef XML_FORM_H
#define XML_FORM_H
#include <string>
#include <vector>

struct XmlForm {
    static constexpr int CHARACTER_FIELDS = 9, TAG_FIELDS = 13; // in the order of sumi_xml_character and sumi_xml_tags
    static constexpr size_t MAX_CHARACTERS = 64;
    struct Character {
        char values[CHARACTER_FIELDS][512] = {};
    };
    std::vector<Character> characters = std::vector<Character>(1);
    char tags[TAG_FIELDS][512] = {};
    char caption[2048] = ""; // a line break in it is a space: see wrapped_text in theme.h

    // On failure the text is empty and `trouble` a sentence.
    bool write(std::string& text, std::string& trouble) const;
};
#endif
