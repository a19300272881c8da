"""What is looked for in the syntax trees of other languages.

Captures: ``def.KIND`` with its ``name`` is a symbol; ``scope`` with its ``name`` qualifies the symbols
inside it and is none itself; ``owner`` names the type that a method belongs to; ``base`` what a class
derives from;
``import`` and ``call`` (the called expression) speak for themselves.
"""

from __future__ import annotations

_SCRIPT = """
(function_declaration name: (identifier) @name) @def.function
(generator_function_declaration name: (identifier) @name) @def.function
(method_definition name: (_) @name) @def.method
(variable_declarator name: (identifier) @name value: [(arrow_function) (function_expression)
(generator_function)])
  @def.function
(program (lexical_declaration (variable_declarator name: (identifier) @name) @def.variable))
(program (export_statement (lexical_declaration (variable_declarator name: (identifier) @name)
@def.variable))) (program (variable_declaration (variable_declarator name: (identifier) @name) @def.variable))
(assignment_expression left: (member_expression property: (property_identifier) @name)
  right: [(arrow_function) (function_expression) (generator_function)]) @def.function
(pair key: (property_identifier) @name value: [(arrow_function) (function_expression)]) @def.function
(import_statement) @import
(export_statement source: (string)) @import
(call_expression function: [(identifier) (member_expression)] @call)
(call_expression function: (import)) @dynamic
(call_expression function: (identifier) @_f (#eq? @_f "require")) @dynamic
(new_expression constructor: (_) @call)
"""

_JAVASCRIPT = (
    _SCRIPT
    + """
(class_declaration name: (identifier) @name) @def.class
(class_heritage (_) @base)
(field_definition property: (_) @name value: [(arrow_function) (function_expression)]) @def.method
"""
)

_TYPESCRIPT = (
    _SCRIPT
    + """
(class_declaration name: (type_identifier) @name) @def.class
(abstract_class_declaration name: (type_identifier) @name) @def.class
(interface_declaration name: (type_identifier) @name) @def.class
(type_alias_declaration name: (type_identifier) @name) @def.class
(enum_declaration name: (identifier) @name) @def.class
(internal_module name: (_) @name) @scope
(function_signature name: (identifier) @name) @def.function
(abstract_method_signature name: (_) @name) @def.method
(method_signature name: (_) @name) @def.method
(public_field_definition name: (_) @name value: [(arrow_function) (function_expression)]) @def.method
(extends_clause value: (_) @base)
(implements_clause (_) @base)
"""
)

_GO = """
(function_declaration name: (identifier) @name) @def.function
(method_declaration receiver: (parameter_list (parameter_declaration type: (_) @owner))
  name: (field_identifier) @name) @def.method
(type_declaration (type_spec name: (type_identifier) @name) @def.class)
(type_declaration (type_alias name: (type_identifier) @name) @def.class)
(source_file (const_declaration (const_spec name: (identifier) @name) @def.variable))
(source_file (var_declaration (var_spec name: (identifier) @name) @def.variable))
(source_file (var_declaration (var_spec_list (var_spec name: (identifier) @name) @def.variable)))
(import_spec) @import
(call_expression function: [(identifier) (selector_expression)] @call)
"""

_RUST = """
(function_item name: (identifier) @name) @def.function
(function_signature_item name: (identifier) @name) @def.function
(struct_item name: (type_identifier) @name) @def.class
(enum_item name: (type_identifier) @name) @def.class
(union_item name: (type_identifier) @name) @def.class
(trait_item name: (type_identifier) @name) @def.class
(type_item name: (type_identifier) @name) @def.class
(macro_definition name: (identifier) @name) @def.function
(const_item name: (identifier) @name) @def.variable
(static_item name: (identifier) @name) @def.variable
(impl_item type: (_) @name) @scope
(mod_item name: (identifier) @name body: (_)) @scope
(mod_item) @import
(use_declaration) @import
(call_expression function: (_) @call)
(macro_invocation macro: (_) @call)
"""

_JAVA = """
(class_declaration name: (identifier) @name) @def.class
(interface_declaration name: (identifier) @name) @def.class
(enum_declaration name: (identifier) @name) @def.class
(record_declaration name: (identifier) @name) @def.class
(annotation_type_declaration name: (identifier) @name) @def.class
(method_declaration name: (identifier) @name) @def.method
(constructor_declaration name: (identifier) @name) @def.method
(compact_constructor_declaration name: (identifier) @name) @def.method
(field_declaration declarator: (variable_declarator name: (identifier) @name)) @def.variable
(superclass (_) @base)
(super_interfaces (type_list (_) @base))
(import_declaration) @import
(package_declaration) @import
(method_invocation) @invoke
(object_creation_expression type: (_) @call)
"""

_C = """
(function_definition declarator: (_) @name) @def.function
(struct_specifier name: (type_identifier) @name body: (_)) @def.class
(union_specifier name: (type_identifier) @name body: (_)) @def.class
(enum_specifier name: (type_identifier) @name body: (_)) @def.class
(type_definition declarator: (type_identifier) @name) @def.class
(preproc_function_def name: (identifier) @name) @def.function
(preproc_def name: (identifier) @name value: (_)) @def.variable
(translation_unit (declaration declarator: (init_declarator declarator: (_) @name)) @def.variable)
(preproc_include) @import
(call_expression function: (_) @call)
"""

_CPP = (
    _C
    + """
(class_specifier name: (_) @name body: (_)) @def.class
(namespace_definition name: (_) @name) @scope
(alias_declaration name: (type_identifier) @name) @def.class
(base_class_clause [(type_identifier) (qualified_identifier) (template_type)] @base)
(new_expression type: (_) @call)
"""
)

QUERIES: dict[str, tuple[str, str, str]] = {
    "javascript": ("tree_sitter_javascript", "language", _JAVASCRIPT),
    "typescript": ("tree_sitter_typescript", "language_typescript", _TYPESCRIPT),
    "tsx": ("tree_sitter_typescript", "language_tsx", _TYPESCRIPT),
    "go": ("tree_sitter_go", "language", _GO),
    "rust": ("tree_sitter_rust", "language", _RUST),
    "java": ("tree_sitter_java", "language", _JAVA),
    "c": ("tree_sitter_c", "language", _C),
    "cpp": ("tree_sitter_cpp", "language", _CPP),
}
"""Language -> (grammar module, its function, query)."""
